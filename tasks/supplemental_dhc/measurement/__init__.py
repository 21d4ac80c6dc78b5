"""Noisy counts of people in households, level by level."""
