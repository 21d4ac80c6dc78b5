"""Redistricting tables P1 to P5 and H1: counted from block estimates, written, and read back."""
