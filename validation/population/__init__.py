"""Independent checks of one population: its two files, and the release they must agree with."""
