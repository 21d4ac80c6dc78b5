"""Designs of a trips budget: the best shares of its levels for what must be precise."""
