"""Building and storing a spine with `geography`."""
