"""Where a trips run keeps artifacts of its own."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory

UNIVERSE = "trips"


def level_folder(level: int) -> str:
    """Name of a level in paths and stages."""
    return f"level_{level:02d}"


def measured_file(run: RunDirectory, level: int, shard: str) -> Path:
    """Noisy counts of one shard."""
    return run.dpqueries(UNIVERSE, level_folder(level), shard)


def estimates_file(run: RunDirectory, level: int, shard: str, *, kind: str = UNIVERSE) -> Path:
    """Estimates of one shard."""
    return run.estimates(kind, level_folder(level), shard)


def estimates_files(run: RunDirectory, level: int, *, kind: str = UNIVERSE) -> list[Path]:
    """All estimates of a level, in the order of the nodes."""
    return sorted(estimates_file(run, level, "x", kind=kind).parent.glob("*.parquet"))


def cuts_file(run: RunDirectory, level: int) -> Path:
    """The cut of a level into shards, which no later version of the code may change."""
    return run.measurements(UNIVERSE, level_folder(level)) / "cuts.json"


def tree_file(run: RunDirectory) -> Path:
    """The last file that ingest writes: where it is, all is."""
    return run.root / "spine" / "trips" / "tree.json"


def plan_file(run: RunDirectory) -> Path:
    """The plan: public."""
    return run.root / "spine" / "trips" / "plan.json"


def leaves_file(run: RunDirectory) -> Path:
    """The confidential counts."""
    return run.confidential / "trips" / "leaves.parquet"


def areas_file(run: RunDirectory) -> Path:
    return tree_file(run).with_name("areas.parquet")
