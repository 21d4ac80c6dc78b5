"""Spineflow: census-like data released under differential privacy, as Prefect flows."""

from importlib.metadata import version

__version__ = version("spineflow")
