"""The nearest households that are possible, and who lives in them, block by block."""
