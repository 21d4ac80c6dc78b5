"""Inference on every answer after a run: estimates from all its noisy measurements, exact standard
deviations, and confidence intervals, for geounits and for areas off the spine."""
