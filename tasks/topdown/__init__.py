"""The TopDown Algorithm, one folder a stage."""
