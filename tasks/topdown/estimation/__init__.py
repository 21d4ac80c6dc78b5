"""Top-down estimation: least squares, rounding, and the solvers behind them."""
