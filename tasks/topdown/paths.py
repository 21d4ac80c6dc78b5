"""Paths of a topdown run's artifacts, in addition to every run's."""

from __future__ import annotations

from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.names import below


def geography_file(run: RunDirectory) -> Path:
    """The geography frame: public."""
    return run.root / "spine" / "geography.parquet"


def invariants_file(run: RunDirectory) -> Path:
    """The declared invariants of every block: public by declaration."""
    return run.root / "spine" / "invariants.parquet"


def state_totals_file(run: RunDirectory) -> Path:
    """The declared population of every state."""
    return run.root / "spine" / "state_totals.json"


def held_file(run: RunDirectory) -> Path:
    """The public answers of earlier releases that constrain the run; without any, no file."""
    return run.root / "spine" / "held.parquet"


def spine_folder(run: RunDirectory, universe: str) -> Path:
    """Folder of a universe's spine."""
    return below(run.root / "spine", universe)


def constraints_file(run: RunDirectory, universe: str, geolevel: str, shard: str) -> Path:
    """Constraints of one shard of geounits."""
    return below(run.measurements(universe, geolevel) / "constraints", f"{shard}.parquet")


def demanded_file(run: RunDirectory, universe: str, geolevel: str, shard: str) -> Path:
    """Incomplete noisy measurements of one shard, drawn on demand."""
    return below(run.measurements(universe, geolevel) / "on_demand", f"{shard}.parquet")


def combined_file(run: RunDirectory, universe: str, geolevel: str, shard: str) -> Path:
    """Estimates of a shard's parents from the measurements of the shard and all below it: the file
    that `runs.objects` writes last."""
    return below(run.root / "combined", universe, geolevel, f"{shard}.json")


def solves_file(run: RunDirectory, universe: str, geolevel: str, shard: str) -> Path:
    """Outcome of each solve of a shard."""
    return below(run.root / "solves", universe, geolevel, f"{shard}.parquet")
