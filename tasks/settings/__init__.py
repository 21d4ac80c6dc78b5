"""Settings: validated once, at the edge, and frozen with the run."""
