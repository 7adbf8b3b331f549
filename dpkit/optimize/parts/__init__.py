"""What optimizers are made of."""
