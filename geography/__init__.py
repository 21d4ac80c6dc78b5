"""Spines: hierarchies of geounits, AIAN branch, optimised groups, bypass, off-spine distance."""
