"""Settings of a county to which tests add a design."""

from __future__ import annotations

HEAD = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
"""
