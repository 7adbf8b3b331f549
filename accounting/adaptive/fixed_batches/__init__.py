"""Many batches of a fixed size, of which one unit is replaced."""
