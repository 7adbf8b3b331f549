"""Private training of torch modules."""
