"""Building and storing the spines of a topdown run."""
