"""Arms that stand: a parameter for each, public ones, and arms that come and go."""
