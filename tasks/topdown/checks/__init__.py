"""Checks of a topdown run, and its accuracy against the confidential truth."""
