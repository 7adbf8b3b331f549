"""Policies for rewards with light tails."""
