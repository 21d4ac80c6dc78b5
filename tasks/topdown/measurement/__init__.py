"""Noisy answers of a topdown run, and the constraints that go with them."""
