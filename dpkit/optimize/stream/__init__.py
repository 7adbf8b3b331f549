"""Optimizers that see one row after the other."""
