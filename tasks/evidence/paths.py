"""Where a comparison keeps what: its page and figures, and what these are made of."""

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


def comparison_folder(run: RunDirectory) -> Path:
    """What is made again where it is damaged, from input that may be disclosed."""
    return run.root / "evidence"


def dataset_folder(run: RunDirectory) -> Path:
    """The input as the product keeps it."""
    return comparison_folder(run) / "dataset"


def people_file(run: RunDirectory) -> Path:
    """The people, and the entities of every level."""
    return comparison_folder(run) / "people.npz"


def tables_file(run: RunDirectory, draw: Draw) -> Path:
    """The tables that a method has published."""
    return below(comparison_folder(run) / "published", draw.name) / "tables.npz"


def figures_file(run: RunDirectory, draw: Draw, what: str) -> Path:
    """What was found of a release: its accuracy, or an attack's outcome."""
    return below(comparison_folder(run) / "found", draw.name) / f"{what}.json"


def piece_file(run: RunDirectory, draw: Draw, piece: int) -> Path:
    """A piece of the areas of a release, rebuilt."""
    return below(run.confidential / "rebuilt", draw.name) / f"{piece}.npz"


def evidence_file(run: RunDirectory) -> Path:
    """All figures."""
    return run.report.parent / "evidence.csv"
