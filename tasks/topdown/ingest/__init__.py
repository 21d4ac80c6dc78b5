"""Input of a topdown run, and a generated county to try it with."""
