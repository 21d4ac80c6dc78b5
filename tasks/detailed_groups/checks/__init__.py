"""Checks of a detailed-groups release, and its error, which is confidential."""
