"""Where a run of the supplemental tables keeps artifacts of its own."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory

UNIVERSE = "people_in_households"
"""The universe in the names of measurement and estimate folders, and in the ledger."""


def areas_file(run: RunDirectory) -> Path:
    """The areas by their regions of all levels, one column a level; public."""
    return run.root / "geography" / "areas.parquet"


def plan_file(run: RunDirectory) -> Path:
    """The plan, which is written last by the ingest; public."""
    return run.root / "geography" / "plan.json"
