"""Where a run of the supplemental tables keeps artifacts of its own."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory

UNIVERSE = "people_in_households"
"""The universe in the names of measurement and estimate folders, and in the ledger."""

SHARD = "00000"
"""A level is measured as one shard."""


def areas_file(run: RunDirectory) -> Path:
    """The areas by their regions of all levels, one column a level; public."""
    return run.root / "geography" / "areas.parquet"


def plan_file(run: RunDirectory) -> Path:
    """The plan, which is written last by the ingest; public."""
    return run.root / "geography" / "plan.json"


def measurement_file(run: RunDirectory, level: str) -> Path:
    """The noisy counts of a level."""
    return run.dpqueries(UNIVERSE, level, SHARD)


def estimates_file(run: RunDirectory, level: str) -> Path:
    """The rows of the tables of a level: noisy values, estimates and intervals."""
    return run.estimates(UNIVERSE, level, SHARD)
