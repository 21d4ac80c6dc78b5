"""What is asked of trips: area hierarchies, trees of range queries, sensitivities and shares."""
