"""Tighter totals where what was seen before decides what is worst next; each a theorem in one file."""
