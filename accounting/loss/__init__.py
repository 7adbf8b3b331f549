"""The privacy loss of one description."""
