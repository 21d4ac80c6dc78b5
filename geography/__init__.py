"""Spines: hierarchies of geounits, AIAN branch, optimised groups, bypass, off-spine distance."""

if __name__ != "spineflow.geography":  # A second copy would have classes of its own.
    raise ImportError("import spineflow.geography; geography is not its name")
