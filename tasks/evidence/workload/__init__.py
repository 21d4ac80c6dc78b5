"""What every method of a comparison publishes: tables over areas, and the people behind them."""
