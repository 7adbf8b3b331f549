"""How a policy survives: state files, checkpoints, journals, who has taught, and the log of decisions."""
