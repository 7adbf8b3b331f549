"""Private running sums of records: pairs of a matrix and a vector, sums by arm, by block, by person, shuffled ones."""
