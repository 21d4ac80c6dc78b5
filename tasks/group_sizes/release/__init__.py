"""The tables and the report of a group-sizes release."""
