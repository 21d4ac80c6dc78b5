"""Exact noise: samplers, the distributions they draw from, and their quantiles."""
