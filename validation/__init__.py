"""Expectation suites for inputs, and checks of a finished run made from its files alone."""

if __name__ != "spineflow.validation":  # A second copy would have classes of its own.
    raise ImportError("import spineflow.validation; validation is not its name")
