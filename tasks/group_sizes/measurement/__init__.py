"""Noisy vectors of the group-sizes flow."""
