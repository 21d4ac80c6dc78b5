"""Tuning: which budget, spine and estimator meet a criterion, found on data that may be known."""
