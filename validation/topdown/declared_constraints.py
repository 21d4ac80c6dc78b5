"""Files of constraints of a declared census: every geounit has what is declared of it, once.

An exact answer is one of a unit, a declared geounit, which a spine may divide. A geounit that is
made up of whole units stands under its own geocode; of a unit that siblings are parts of, the
unit's path stands once, at the first geolevel where none of its parts reaches beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import positions
from .constraints import COLUMNS, values_of
from .run_files import RunSpine, SpineLevel, read_batches


@dataclass(frozen=True, eq=False)
class ExpectedUnits:
    """The units of an exact answer: `number` (n_areas,) of each area's, and the paths of all.

    listed : the geolevel at which all units stand under their paths, and the name of the sums of
        those above it; None where a spine decides.
    """

    number: np.ndarray
    path: np.ndarray
    listed: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class ExpectedConstraint:
    """A constraint by its name in files: sign, numbers of a value, and its units; without units
    every geounit has it.
    """

    name: str
    sign: str
    n_rows: int
    units: ExpectedUnits | None = None


def check_constraint_files(
    run_directory: Path,
    universe: str,
    spine: RunSpine,
    area_of_block: np.ndarray,
    expected: Sequence[ExpectedConstraint],
    failures: Failures,
) -> None:
    """Check that files have each constraint once wherever it is due, and no others.

    `area_of_block` (n_blocks,) are the rows that `ExpectedUnits.number` is in the order of. Raises
    UnusableRunFile for values of another form than lists of so many integers.
    """
    due: list[dict[tuple[str, str], tuple[pa.Array, int]]] = [{} for _ in spine.levels]
    for one in expected:
        for codes, (name, geocodes) in zip(due, _due(spine, area_of_block, one), strict=True):
            if len(geocodes):
                codes[name, one.sign] = geocodes, one.n_rows
    for level, codes in zip(spine.levels, due, strict=True):
        folder = run_directory / "measurements" / universe / level.name / "constraints"
        _check_level(folder, level.name, codes, failures)


def _due(
    spine: RunSpine, area_of_block: np.ndarray, one: ExpectedConstraint
) -> Iterator[tuple[str, pa.Array]]:
    """By geolevel, the name and the codes under which a constraint stands."""
    if one.units is None:
        yield from ((one.name, level.geocode) for level in spine.levels)
    elif one.units.listed is not None:
        geolevel, above = one.units.listed
        place = spine.level_index(geolevel)
        used = pa.array(one.units.path[np.unique(one.units.number[area_of_block])], pa.string())
        for depth, level in enumerate(spine.levels):
            codes = level.geocode if depth < place else used if depth == place else used[:0]
            yield (one.name if depth >= place else above), codes
    else:
        unit, is_resolved = one.units.number[area_of_block], np.zeros(len(one.units.path), bool)
        for level, ancestor in zip(spine.levels, spine.ancestors, strict=True):
            own, parts, is_resolved = _of_level(level, ancestor, unit, is_resolved)
            paths = pa.array(one.units.path[parts], pa.string())
            yield one.name, pa.concat_arrays([level.geocode.filter(pa.array(own)), paths])


def _of_level(
    level: SpineLevel, ancestor: np.ndarray, unit: np.ndarray, is_resolved: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mask of the geounits that are made up of whole units, units that stand here by their paths,
    and mask of the units that are in no need of standing below."""
    lowest, highest = np.full(level.n, len(is_resolved)), np.full(level.n, -1)
    np.minimum.at(lowest, ancestor, unit)
    np.maximum.at(highest, ancestor, unit)
    n_areas = np.bincount(unit, minlength=len(is_resolved))
    is_within = lowest == highest
    is_part = is_within & (np.bincount(ancestor, minlength=level.n) < n_areas[lowest])
    reaches_out = np.bincount(unit[~is_within[ancestor]], minlength=len(is_resolved)) > 0
    is_here = ~is_resolved & ~reaches_out
    parts = np.unique(lowest[is_part & is_here[np.where(is_part, lowest, 0)]])
    return ~is_part, parts, is_resolved | is_here


def _check_level(
    folder: Path,
    geolevel: str,
    due: Mapping[tuple[str, str], tuple[pa.Array, int]],
    failures: Failures,
) -> None:
    times = {key: np.zeros(len(codes), dtype=np.int64) for key, (codes, _) in due.items()}
    for batch in read_batches(folder, COLUMNS, as_dictionary=["query_name", "sign"]):
        names, signs = (batch.column(column).cast(pa.string()) for column in COLUMNS[1:3])
        pairs = pa.table([names, signs], ["name", "sign"]).group_by(["name", "sign"]).aggregate([])
        for name, sign in zip(*(column.to_pylist() for column in pairs.columns), strict=True):
            rows = batch.filter(pc.and_(pc.equal(names, name), pc.equal(signs, sign)))
            if (name, sign) not in due:
                failures.add(f"{name} {sign} is not expected at {geolevel}", rows.num_rows)
                continue
            codes, n_rows = due[name, sign]
            values_of(rows, n_rows, name)
            place = positions(rows.column("geocode"), codes)
            failures.add_each(place < 0, f"{name} at {geolevel} has a geocode that is not due")
            np.add.at(times[name, sign], place[place >= 0], 1)
    for (name, sign), found in times.items():
        wrong = np.flatnonzero(found != 1)
        if wrong.size:
            first = f"{geolevel} {due[name, sign][0][int(wrong[0])]}"
            failures.add(f"{first} has {name} {sign} {found[wrong[0]]} times", wrong.size)
