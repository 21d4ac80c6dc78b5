"""Expectation suites for inputs, and checks of a finished run made from its files alone."""
