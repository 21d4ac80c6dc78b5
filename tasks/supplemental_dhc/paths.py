"""Where a run of the supplemental tables keeps artifacts of its own."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory

UNIVERSE = "people_in_households"
"""The universe in the names of measurement and estimate folders, and in the ledger."""


def areas_file(run: RunDirectory) -> Path:
    """The areas by their regions of all levels, one column a level; public.

    They are written last by the ingest: where they are, all is.
    """
    return run.root / "geography" / "areas.parquet"
