"""Measuring trips: noisy counts of a tree's nodes, level by level, and the stability histogram."""
