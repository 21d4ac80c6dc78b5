"""Persons and households as one population: they agree in every block."""
