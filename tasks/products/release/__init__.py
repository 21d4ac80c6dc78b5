"""The end of every run: checks, the release, the report."""
