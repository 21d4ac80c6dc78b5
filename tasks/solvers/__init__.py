"""General solvers behind small interfaces."""
