"""Reading the census of a comparison: people, areas and tables, kept for all methods."""
