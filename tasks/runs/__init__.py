"""A run and its directory: settings, files, steps, errors."""
