"""Estimates up and down a run's spine as a file, for the tasks that write pieces of its margins.

Two files a universe, below `intervals/` of the run: `posterior.json` says of every array what it
is, and `posterior.bin` has them one after the other, each from a multiple of 64 bytes on, so that
they are used as they are mapped. All of it follows from what is public. The bounds of the geounits
stand there too, so that constraints are not read again. The means of the steps are left out:
margins ask for those of geounits from everything alone. What reads them finds no number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.directory import RunDirectory
from ...runs.files import replacing, write_text
from ..estimation.linear_estimates import LinearEstimates
from ..estimation.query_algebra import QueryAlgebra
from ..estimation.spine_estimates import Group, GroupedEstimates, Step
from ..settings import TopdownSettings
from ..spine.files import spine_of
from .run_posterior import LevelBounds, RunLevels, RunPosterior
from .spine_posterior import SpinePosterior

ALIGNED = 64
FORMAT = 3
"""Of what is kept; what a run has in another one is made again."""
_STEPS = ("variance", "diffuse")
_ALL = ("mean", *_STEPS)

Place = Mapping[str, Any]
"""What an array is, and where in the file."""


def keep_posterior(run: RunDirectory, universe: str, found: RunPosterior) -> Path:
    """Write the estimates of a universe; the file that is written last."""
    arrays: list[tuple[int, np.ndarray]] = []

    def place(array: np.ndarray) -> Place:
        before = arrays[-1][0] + arrays[-1][1].nbytes if arrays else 0
        at = -(-before // ALIGNED) * ALIGNED
        arrays.append((at, np.ascontiguousarray(array)))
        return {"kind": array.dtype.str, "shape": array.shape, "at": at}

    posterior = found.posterior
    facts = {
        "format": FORMAT,
        "root": _facts(posterior.root, _STEPS),
        "steps": [
            (_facts(step.parts, _STEPS), step.whole, _facts(step.sums, _STEPS))
            for step in posterior.steps
        ],
        "depths": posterior.depth_of_step,
        "geolevels": [_facts(level, _ALL) for level in found.geolevels],
        "bounds": [(bound.lower, bound.upper, bound.total) for bound in found.bounds],
        "type_of_cell": found.of_run.type_of_cell,
    }
    description, content = _files(run, universe)
    text = json.dumps(facts, default=place)
    with replacing(content) as part, part.open("wb") as file:
        for at, array in arrays:
            file.seek(at)
            file.write(array.data if array.size else b"")
    write_text(description, text)
    return description


def has_posterior(run: RunDirectory, universe: str) -> bool:
    """Whether the estimates of a universe stand, in the format of today."""
    description, content = _files(run, universe)
    if not (description.exists() and content.exists()):
        return False
    try:
        return bool(json.loads(description.read_bytes())["format"] == FORMAT)
    except (ValueError, KeyError):
        return False


def posterior_of(run: RunDirectory, settings: TopdownSettings, universe: str) -> RunPosterior:
    """The estimates of a universe that are kept, mapped where they stand."""
    description, content = _files(run, universe)
    bytes_of = np.memmap(content, dtype=np.uint8, mode="r") if content.stat().st_size else None

    def found(of: dict[str, Any]) -> Any:
        return _array(bytes_of, of) if of.keys() == {"kind", "shape", "at"} else of

    facts = json.loads(description.read_bytes(), object_hook=found)
    bounds = tuple(LevelBounds(*of) for of in facts["bounds"])
    spine = spine_of(run, universe)
    levels = RunLevels.of_bounds(settings, universe, spine, bounds, facts["type_of_cell"])
    algebra = levels.algebra

    def estimates(of: Mapping[str, Any]) -> GroupedEstimates:
        groups = tuple(_group(algebra, **group) for group in of["groups"])
        return GroupedEstimates(algebra, of["can_have"], groups)

    steps = tuple(
        Step(estimates(parts), whole, estimates(sums)) for parts, whole, sums in facts["steps"]
    )
    up = SpinePosterior(algebra, estimates(facts["root"]), steps, tuple(facts["depths"]))
    return RunPosterior(levels, up, tuple(map(estimates, facts["geolevels"])))


def drop_posterior(run: RunDirectory, universe: str) -> None:
    """Remove the estimates of a universe, which nobody needs any more."""
    for path in _files(run, universe):
        path.unlink(missing_ok=True)


def _facts(of: GroupedEstimates, names: Sequence[str]) -> dict[str, Any]:
    """The arrays of estimates, and of these those of the names."""
    groups = [
        {"rows": group.rows, "cells": group.cells}
        | {name: getattr(group.estimates, name) for name in names}
        for group in of.groups
    ]
    return {"can_have": of.type_is_possible, "groups": groups}


def _group(
    algebra: QueryAlgebra,
    rows: np.ndarray,
    cells: np.ndarray,
    variance: np.ndarray,
    diffuse: np.ndarray,
    mean: np.ndarray | None = None,
) -> Group:
    """A group as `_facts` has it; without means, where those of steps are left out."""
    if mean is None:
        mean = np.broadcast_to(np.nan, (rows.size, cells.size, algebra.n_coordinates))
    return Group(rows, cells, LinearEstimates(mean, variance, diffuse))


def _array(content: np.ndarray | None, place: Place) -> np.ndarray:
    kind, shape = np.dtype(place["kind"]), tuple(place["shape"])
    if content is None or 0 in shape:
        return np.zeros(shape, kind)
    return np.ndarray(shape, kind, content, place["at"])


def _files(run: RunDirectory, universe: str) -> tuple[Path, Path]:
    folder = run.root / "intervals" / universe
    return folder / "posterior.json", folder / "posterior.bin"
