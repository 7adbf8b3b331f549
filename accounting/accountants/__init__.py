"""What releases cost, in one notion of privacy per file."""
