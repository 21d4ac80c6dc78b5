"""The files of one population."""
