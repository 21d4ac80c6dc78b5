"""Persons in households: an assignment in each block, then one local search."""
