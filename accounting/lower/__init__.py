"""What a release costs at least."""
