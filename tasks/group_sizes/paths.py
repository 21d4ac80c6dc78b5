"""Where a group-sizes run keeps artifacts of its own."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory

UNIVERSE = "groups"
"""The universe in the names of measurement and estimate folders."""


def regions_file(run: RunDirectory) -> Path:
    """The hierarchy: level, region, parent; public."""
    return run.root / "hierarchy" / "regions.parquet"


def plan_file(run: RunDirectory) -> Path:
    """The plan, which is written last by the ingest; public."""
    return run.root / "hierarchy" / "plan.json"


def exact_groups_file(run: RunDirectory) -> Path:
    """The public numbers of groups of the plan's exact level: region, groups."""
    return run.root / "hierarchy" / "exact_groups.parquet"
