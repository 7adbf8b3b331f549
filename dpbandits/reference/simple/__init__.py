"""Simple policies, and those with a parameter for each arm."""
