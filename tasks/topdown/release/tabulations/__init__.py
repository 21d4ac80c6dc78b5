"""Redistricting tables P1 to P5 and H1: counted from microdata, written, and read back."""
