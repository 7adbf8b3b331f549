"""How a policy survives: state files, checkpoints, journals, and the log of decisions."""
