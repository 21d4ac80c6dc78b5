"""Evidence: the cost and the protection of each method, compared on one census."""
