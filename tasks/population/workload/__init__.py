"""Composition of households: places, types and their slots, and tables of both universes."""
