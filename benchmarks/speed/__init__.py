"""The rows of the speed table, one module per area; each has ``rows()``."""
