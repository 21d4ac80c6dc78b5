"""Readers, recodes, histograms and invariants."""
