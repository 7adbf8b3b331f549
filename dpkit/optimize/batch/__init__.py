"""Optimizers that see all rows at once."""
