"""Accuracy of a run against the confidential truth; everything written here is confidential."""
