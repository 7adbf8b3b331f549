"""Policies against environments: runs, results, plots."""
