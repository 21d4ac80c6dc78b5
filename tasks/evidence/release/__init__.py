"""The page of a comparison, and its figures as one table."""
