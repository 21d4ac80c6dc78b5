"""What the published noise of runs costs, told from their measurement files alone.

Nothing here comes from what wrote the files: losses are added up from the `plb` of their rows as
the layout of each product defines it, and compared with what a ledger has charged.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from spineflow.tasks.noise.distributions import noise_variance

UNFINISHED = ".unpublished"

GROUPS, DRAW_OF_GROUPS = "detailed_groups", "population groups"
"""Folder of detailed groups, and the draw that all are charged as; others have one name."""

HOUSEHOLDS = "detailed_households"
DRAWS_OF_HOUSEHOLDS = {"t3": "household type", "t4": "tenure"}
"""Folder of their households, and the draw that each of its tabulations is charged as."""

STAGE_1, STAGE_2, TOTAL = "stage 1", "stage 2", "total only"


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def measurement_names(root: Path) -> dict[str, Path]:
    """The files of a run that noise was drawn for, or that decided what is drawn, by name."""
    return {
        path.relative_to(root).as_posix(): path
        for path in sorted((root / "measurements").rglob("*"))
        if path.is_file() and path.parent.name != "constraints" and not path.name.startswith(".")
    }


def unfinished_digests(root: Path) -> set[str]:
    """Digests of what lies in a run without its name: in confidence, or open to readers."""
    return {digest_of(path) for path in root.rglob(f".*{UNFINISHED}")}


@dataclass(frozen=True)
class Row:
    """What a ledger has charged for one draw of a run."""

    dataset: str
    parameter: Fraction
    bounded_rho: Fraction
    n_values: int | None
    variances: frozenset[float]


@dataclass(frozen=True)
class LedgerView:
    """The rows of a ledger, read from its file: what it holds, whatever it is worth.

    `state` is its number, its identity and that of the state before.
    """

    state: tuple[int, str, str]
    draws: Mapping[tuple[str, str], Row]
    published: Mapping[tuple[str, str], str]
    directories: Mapping[str, str]
    caps: Mapping[str, Fraction]

    def spent(self, dataset: str) -> Fraction:
        """Bounded rho of all draws from a dataset: what zCDP adds up to."""
        rows = (row.bounded_rho for row in self.draws.values() if row.dataset == dataset)
        return sum(rows, Fraction(0))

    def published_by(self, run_id: str) -> dict[str, str]:
        """Digests of the files of one run by name."""
        return {name: digest for (run, name), digest in self.published.items() if run == run_id}


def read_ledger(path: Path) -> LedgerView:
    """The rows of a ledger's file."""
    with closing(sqlite3.connect(path)) as connection:
        state = connection.execute("SELECT sequence, state, state_before FROM ledger").fetchone()
        variances = defaultdict(set)
        for run_id, draw, mechanism, parameter in connection.execute(
            "SELECT run_id, draw, mechanism, parameter FROM noise"
        ):
            variances[run_id, draw].add(noise_variance(mechanism, Fraction(parameter)))
        draws = {
            (run_id, name): Row(
                dataset, Fraction(own), Fraction(rho), n, frozenset(variances[run_id, name])
            )
            for run_id, name, dataset, own, rho, n in connection.execute(
                "SELECT run_id, name, dataset, parameter, bounded_rho, n_values FROM draws"
            )
        }
        published = connection.execute("SELECT run_id, name, digest FROM published")
        directories = connection.execute("SELECT run_id, identity FROM directories")
        caps = connection.execute("SELECT name, cap FROM datasets WHERE cap IS NOT NULL")
        return LedgerView(
            tuple(state),
            draws,
            {(run_id, name): digest for run_id, name, digest in published},
            dict(directories.fetchall()),
            {name: Fraction(cap) for name, cap in caps},
        )


@dataclass(frozen=True)
class FileNoise:
    """The noise of one measurement file: `losses` by the places that a record may be in.

    draw : name of the charge.
    level : where in the product's accounting the losses stand.
    """

    draw: str
    level: str
    losses: Mapping[str, Fraction]
    n_values: int
    variances: frozenset[float]


def noise_of(name: str, path: Path) -> FileNoise | None:
    """The noise of a measurement file by its name within the run; None if it holds none."""
    if path.suffix != ".parquet":
        return None
    kind, *rest = name.split("/")[1:]
    frame = pq.read_table(path).to_pandas()
    frame["plb"] = frame["plb"].astype(str).map(Fraction).astype(object)
    if kind.startswith(GROUPS):
        draw, level = DRAW_OF_GROUPS, "/".join(rest[:3])
        stage = (
            STAGE_1 if kind != GROUPS else frame["total_only"].map({True: TOTAL, False: STAGE_2})
        )
        losses = frame.assign(place=stage).groupby("place")["plb"].max()
    elif kind == HOUSEHOLDS:
        draw, level = DRAWS_OF_HOUSEHOLDS[rest[0]], "/".join(rest[1:4])
        losses = frame.assign(place=level).groupby("place")["plb"].max()
    elif "geocode" in frame:
        draw, level = kind, rest[0]
        losses = frame.groupby("geocode")["plb"].sum()
    else:
        draw, level = kind, rest[0]
        losses = frame.assign(place=level).groupby("place")["plb"].max()
    n_values = int(frame["value"].map(np.size).sum())
    return FileNoise(
        draw, level, losses.to_dict(), n_values, frozenset(frame["variance"].astype(float))
    )


def loss_of(files: Iterable[FileNoise]) -> Fraction:
    """The most that one record loses to the files of one draw.

    A record of a spine is in one geounit of each geolevel, each within the one above; elsewhere in
    one region, or one node, of each level. A detailed group is measured in two stages, or by a
    total, at each level.
    """
    levels: dict[str, dict[str, Fraction]] = defaultdict(dict)
    for file in files:
        for place, loss in file.losses.items():
            levels[file.level][place] = max(levels[file.level].get(place, loss), loss)
    if any(place in own for own in levels.values() for place in (STAGE_1, STAGE_2, TOTAL)):
        return sum(map(_loss_of_groups, levels.values()), Fraction(0))
    if levels.keys() & {"US", "State", "Block"}:
        return _loss_on_spine(levels)
    return sum((max(own.values()) for own in levels.values()), Fraction(0))


def _loss_of_groups(level: Mapping[str, Fraction]) -> Fraction:
    nothing = Fraction(0)
    staged = level.get(STAGE_1, nothing) + level.get(STAGE_2, nothing)
    return max(staged, level.get(TOTAL, nothing))


def _loss_on_spine(levels: Mapping[str, Mapping[str, Fraction]]) -> Fraction:
    """The largest sum along a path: a parent's geocode begins its children's, the root is first."""
    nothing = Fraction(0)
    root = max(levels.get("US", {}).values(), default=nothing)
    own = {code: loss for level in levels if level != "US" for code, loss in levels[level].items()}
    paths = (sum(own.get(code[:n], nothing) for n in range(1, len(code) + 1)) for code in own)
    return root + max(paths, default=nothing)
