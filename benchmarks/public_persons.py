"""The public data of benchmarks, and the persons whose releases they compare with the truth."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from spineflow.tasks.topdown.ingest.generate import generate_county

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BRISTOL = DATA / "ri2010_bristol_fixed_width"
BRISTOL_FILES = ("CEF20_PER.txt.gz", "CEF20_UNIT.txt.gz", "GRFC.txt")
STATE = DATA / "ri2010"
TRIPS = DATA / "trips"
STATE_FILES = ("persons.parquet", "units.parquet", "grfc.txt")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Options for other persons than those of Bristol county."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--generated", type=int, metavar="PERSONS")
    where.add_argument("--state", action="store_true")


def chosen(asked: argparse.Namespace, folder: Path) -> list[Path]:
    """Persons, units and geography that the options name; a generated county is in `folder`."""
    if asked.state:
        return state()
    if asked.generated:
        return generated(asked.generated, folder)
    return [BRISTOL / file for file in BRISTOL_FILES]


def state(folder: Path = STATE) -> list[Path]:
    """Persons, units and geography of a folder."""
    return [folder / file for file in STATE_FILES]


def generated(persons: int, folder: Path) -> list[Path]:
    """Persons, units and geography of a generated county."""
    made = generate_county(folder / "county", persons=persons, seed=1)
    return [made.persons, made.units, made.geography]


def settings_of(
    tables: Sequence[Path], *, preset: str = "pl94_2020_us", **run: object
) -> dict[str, Any]:
    """Settings of a run of persons, units and geography; `run` is the section of this name."""
    names = ("persons", "units", "geography")
    return {
        "preset": preset,
        "input": dict(zip(names, map(str, tables), strict=True)) | {"confidential": False},
        "privacy": {"dataset": "benchmark"},
        "run": run,
    }


def root_of_mean(squares: pd.Series) -> tuple[float, float]:
    """Root of the mean of squares over replicates, and its standard error."""
    root = float(np.sqrt(squares.mean()))
    return root, float(squares.std(ddof=1) / np.sqrt(len(squares)) / (2 * root))
