"""Checks of a topdown run, made from its public files alone."""
