"""Estimation of trips: integer projections of noisy children onto their parents' counts."""
