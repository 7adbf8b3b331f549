"""The private policies, one file each, named after the algorithm."""
