"""Where a comparison keeps what; all but the page and its figures is confidential."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.names import below


@dataclass(frozen=True)
class Draw:
    """One release: of a method at a strength, by their names and position, under a number."""

    method: str
    strength: int
    number: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.method}-{self.strength + 1}-{self.number}"


def dataset_folder(run: RunDirectory) -> Path:
    """The input as the product keeps it."""
    return run.confidential / "dataset"


def people_file(run: RunDirectory) -> Path:
    """The people, and the entities of every level."""
    return run.confidential / "people.npz"


def tables_file(run: RunDirectory, draw: Draw) -> Path:
    """The tables that a method has published."""
    return below(run.confidential / "published", draw.name) / "tables.npz"


def figures_file(run: RunDirectory, draw: Draw, what: str) -> Path:
    """What was found of a release: its accuracy, or an attack's outcome."""
    return below(run.confidential / "found", draw.name) / f"{what}.json"


def piece_file(run: RunDirectory, draw: Draw, piece: int) -> Path:
    """A piece of the areas of a release, rebuilt."""
    return below(run.confidential / "rebuilt", draw.name) / f"{piece}.npz"


def evidence_file(run: RunDirectory) -> Path:
    """All figures."""
    return run.report.parent / "evidence.csv"
