"""A run and its directory: settings, files, steps, errors, and the gate to its release."""
