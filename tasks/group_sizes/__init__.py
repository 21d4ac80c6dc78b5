"""Hierarchical group-size histograms: groups of each size by region, one folder a stage."""
