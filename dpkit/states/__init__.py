"""What keeps a promise between one release and the next: runs, their states and their files."""
