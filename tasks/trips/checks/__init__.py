"""Checks of a trips run, and its accuracy against the confidential truth."""
