"""What sampling, shuffling and taking part several times do to a cost."""
