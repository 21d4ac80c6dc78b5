"""Designs of a group-sizes budget: the best shares of its levels for what must be precise."""
