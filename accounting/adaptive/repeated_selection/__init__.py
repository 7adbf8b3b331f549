"""The best of several runs, several times."""
