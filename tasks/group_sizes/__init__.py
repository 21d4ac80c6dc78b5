"""Hierarchical group-size histograms, one folder a stage."""
