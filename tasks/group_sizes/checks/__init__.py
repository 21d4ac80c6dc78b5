"""Checks of a group-sizes release, and its error, which is confidential."""
