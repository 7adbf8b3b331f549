"""Policies for rewards with heavy tails."""
