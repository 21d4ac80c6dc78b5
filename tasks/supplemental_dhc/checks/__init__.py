"""Errors of a release against the confidential truth."""
