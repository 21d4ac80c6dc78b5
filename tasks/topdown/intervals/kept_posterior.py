"""Estimates up and down a run's spine as a file, for the tasks that write pieces of its margins.

Two files a universe, below `intervals/` of the run: `posterior.json` says of every array what it
is, and `posterior.bin` has them one after the other, each from a multiple of 64 bytes on, so that
they are used as they are mapped. All of it follows from what is public. The bounds of the geounits
stand there too, so that constraints are not read again. The means of the steps are left out:
margins ask for those of geounits from everything alone. What reads them finds no number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.directory import RunDirectory
from ...runs.files import replacing, write_text
from ..estimation.linear_estimates import LinearEstimates
from ..estimation.query_algebra import QueryAlgebra
from ..estimation.spine_estimates import Group, GroupedEstimates, Step
from ..settings import TopdownSettings
from .run_posterior import LevelBounds, RunLevels, RunPosterior
from .spine_posterior import SpinePosterior

ALIGNED = 64
FORMAT = 2
"""Of what is kept; what a run has in another one is made again."""
_STEPS = ("variance", "diffuse")
_ALL = ("mean", *_STEPS)

Place = Mapping[str, Any]
"""What an array is, and where in the file."""


def keep_posterior(run: RunDirectory, universe: str, found: RunPosterior) -> Path:
    """Write the estimates of a universe; the file that is written last."""
    places: list[Place] = []
    arrays: list[np.ndarray] = []

    def kept(array: np.ndarray) -> int:
        array = np.ascontiguousarray(array)
        before = places[-1]["at"] + arrays[-1].nbytes if arrays else 0
        at = -(-before // ALIGNED) * ALIGNED
        arrays.append(array)
        places.append({"kind": array.dtype.str, "shape": array.shape, "at": at})
        return len(arrays) - 1

    def estimates(of: GroupedEstimates, names: Sequence[str]) -> dict[str, Any]:
        groups = [
            {
                "rows": kept(group.rows),
                "cells": kept(group.cells),
                **{name: kept(getattr(group.estimates, name)) for name in names},
            }
            for group in of.groups
        ]
        return {"can_have": kept(of.can_have), "groups": groups}

    posterior = found.posterior
    steps = [
        {
            "parts": estimates(step.parts, _STEPS),
            "whole": kept(step.whole),
            "sums": estimates(step.sums, _STEPS),
        }
        for step in posterior.steps
    ]
    told = {
        "format": FORMAT,
        "root": estimates(posterior.root, _STEPS),
        "steps": steps,
        "depths": list(posterior.depth_of_step),
        "geolevels": [estimates(level, _ALL) for level in found.geolevels],
        "bounds": [
            {
                "lower": kept(bound.lower),
                "upper": kept(bound.upper),
                "total": None if bound.total is None else kept(bound.total),
            }
            for bound in found.bounds
        ],
        "type_of_cell": kept(found.of_run.type_of_cell),
        "arrays": places,
    }
    description, content = _files(run, universe)
    with replacing(content) as part, part.open("wb") as file:
        for place, array in zip(places, arrays, strict=True):
            file.seek(place["at"])
            file.write(array.data if array.size else b"")
    write_text(description, json.dumps(told))
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
    told = json.loads(description.read_bytes())
    bytes_of = np.memmap(content, dtype=np.uint8, mode="r") if content.stat().st_size else None
    arrays = [_array(bytes_of, place) for place in told["arrays"]]
    bounds = tuple(
        LevelBounds(
            arrays[of["lower"]],
            arrays[of["upper"]],
            None if of["total"] is None else arrays[of["total"]],
        )
        for of in told["bounds"]
    )
    levels = RunLevels.of_bounds(run, settings, universe, bounds, arrays[told["type_of_cell"]])
    algebra = levels.algebra

    def estimates(of: Mapping[str, Any]) -> GroupedEstimates:
        groups = tuple(_groups(algebra, of["groups"], arrays))
        return GroupedEstimates(algebra, arrays[of["can_have"]], groups)

    steps = tuple(
        Step(estimates(step["parts"]), arrays[step["whole"]], estimates(step["sums"]))
        for step in told["steps"]
    )
    up = SpinePosterior(algebra, estimates(told["root"]), steps, tuple(told["depths"]))
    return RunPosterior(levels, up, tuple(map(estimates, told["geolevels"])))


def drop_posterior(run: RunDirectory, universe: str) -> None:
    """Remove the estimates of a universe, which nobody needs any more."""
    for path in _files(run, universe):
        path.unlink(missing_ok=True)


def _array(content: np.ndarray | None, place: Place) -> np.ndarray:
    kind, shape = np.dtype(place["kind"]), tuple(place["shape"])
    size = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if content is None or not size:
        return np.zeros(shape, kind)
    part = content[place["at"] : place["at"] + size]
    return np.asarray(part).view(kind).reshape(shape)


def _groups(
    algebra: QueryAlgebra, told: Sequence[Mapping[str, int]], arrays: Sequence[np.ndarray]
) -> Iterator[Group]:
    for group in told:
        rows, cells, variance, diffuse = (
            arrays[group[name]] for name in ("rows", "cells", *_STEPS)
        )
        shape = rows.size, cells.size, algebra.n_coordinates
        mean = arrays[group["mean"]] if "mean" in group else np.broadcast_to(np.nan, shape)
        yield Group(rows, cells, LinearEstimates(mean, variance, diffuse))


def _files(run: RunDirectory, universe: str) -> tuple[Path, Path]:
    folder = run.root / "intervals" / universe
    return folder / "posterior.json", folder / "posterior.bin"
