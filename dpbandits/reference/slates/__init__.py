"""Policies for slates: k arms in a round, with clicks by position."""
