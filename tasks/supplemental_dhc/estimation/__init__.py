"""Posterior means and intervals of counts and averages, from noisy counts alone."""
