"""Constraints: invariants hold exactly, bounds hold, structural zeros are empty.

A constraint's name says what it counts: `total_con` and `state_total_con` the total,
`<attribute>_total_con` the marginal of the attribute, `_lb` or `_ub` before `_con` that the value
is a lower or an upper bound. Names of structural zeros are given with the cells they empty.

Of a declared census names, signs and widths are told, and releases are held to the declarations.
An exact answer there is one of a unit, a declared geounit, which a spine may divide. A geounit that
is made up of whole units stands under its own geocode; of a unit that siblings are parts of, the
unit's path stands once, at the first geolevel where none of its parts reaches beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, positions
from .cells import Cells, Margin
from .conservation import LevelEstimates
from .declarations import ExpectedConstraint
from .run_files import (
    ExpectedUniverse,
    RunSpine,
    SpineLevel,
    lengths_of_lists,
    read_batches,
    state_fips,
)

COMPLETE = "constraints_are_complete"
STATE_TOTAL = "state_total_con"
COLUMNS = ("geocode", "query_name", "sign", "value")
_COMPARISONS = {"=": np.not_equal, ">=": np.less, "<=": np.greater}
"""When an answer breaks a constraint of each sign."""


def constraint_margin(cells: Cells, name: str) -> Margin:
    """The rows of the query that a constraint bounds or fixes, from the constraint's name.

    Raises ValueError if the name follows none of the rules of this module.

    >>> constraint_margin(Cells("persons", {"kind": 8, "sex": 2}), "kind_total_lb_con").n_rows
    8
    """
    if not name.endswith("_con"):
        raise ValueError(f"the constraint {name!r} does not end with '_con'")
    counted = name.removesuffix("_con").removesuffix("_lb").removesuffix("_ub")
    if counted in ("total", "state_total"):
        counted = "total"
    elif counted.endswith("_total"):
        counted = counted.removesuffix("_total")
    return cells.margin(counted)


def expected_sign(name: str) -> str:
    """The sign that a constraint of this name has: `>=`, `<=` or `=`."""
    if name.endswith("_lb_con"):
        return ">="
    return "<=" if name.endswith("_ub_con") else "="


def check_constraints(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    level: SpineLevel,
    estimates: LevelEstimates,
    failures: Mapping[str, Failures],
) -> None:
    """Check the estimates of a geolevel, or of a part of one, against its constraint files.

    Completeness: every geounit carries each constraint expected at its geolevel once, with the
    sign of its name, and none that is not expected. Equalities, bounds: the estimates' answers
    satisfy them. Structural zeros: their cells are zero, and files say so.

    Raises UnusableRunFile for values of another form than lists of integers.
    """
    names = [name for name, at in (expected.constraints or {}).items() if level.name in at]
    due = [_due(name, expected, spine, level, estimates) for name in names]
    folder = run_directory / "measurements" / expected.cells.universe / level.name / "constraints"
    check_files(folder, level, due, failures)


def check_zeros(
    expected: ExpectedUniverse, level: SpineLevel, estimates: LevelEstimates, failures: Failures
) -> None:
    """The cells that structural zeros empty have no estimates."""
    for name, conditions in expected.structural_zeros.items():
        failures.add_each(
            expected.cells.where(conditions)[estimates.cell],
            partial(_has_records, name, level, estimates),
        )


def check_files(
    folder: Path, level: SpineLevel, due: Sequence[Due], failures: Mapping[str, Failures]
) -> None:
    """Every constraint that is due stands once under each of its codes, and there are no others.

    Raises UnusableRunFile for values of another form than lists of so many integers.
    """
    by_name = {one.name: one for one in due}
    for batch in read_batches(folder, COLUMNS, as_dictionary=["query_name", "sign"], level=level):
        name_column = batch.column("query_name")
        for name in pc.unique(name_column).to_pylist():
            rows = batch.filter(pc.equal(name_column, name))
            if name in by_name:
                by_name[name].check_rows(rows, level.name, failures)
            else:
                failures[COMPLETE].add(
                    f"constraint {name} is not expected at geolevel {level.name}", rows.num_rows
                )
    for one in due:
        one.check_times(level.name, failures[COMPLETE])


def _has_records(name: str, level: SpineLevel, estimates: LevelEstimates, i: int) -> str:
    return (
        f"{level.describe(int(estimates.geounit[i]))} has a count in cell {estimates.cell[i]}, "
        f"which {name} empties"
    )


@dataclass(eq=False)
class Due:
    """A constraint that is due at one geolevel, once under each of some codes.

    geocode : the codes, and `positions` their numbers by code. n_rows : numbers of a value.
    answers : (n, n_rows) what the estimates answer under each code, which must not break it, and
        `check` the check that it would fail; None where releases are held to declarations instead.
    """

    name: str
    sign: str
    geocode: pa.StringArray
    positions: Callable[[pa.Array], np.ndarray]
    n_rows: int
    answers: np.ndarray | None = None
    check: str = COMPLETE

    @cached_property
    def times_seen(self) -> np.ndarray:
        """How often the constraint stood under each code, so far."""
        return np.zeros(len(self.geocode), dtype=np.int32)

    def check_rows(
        self, rows: pa.RecordBatch, geolevel: str, failures: Mapping[str, Failures]
    ) -> None:
        """Check rows that all have this constraint's name."""
        position = self.positions(rows.column("geocode"))
        failures[COMPLETE].add_each(
            position < 0, f"{self.name} at {geolevel} has a geocode that is not due"
        )
        failures[COMPLETE].add_each(
            pc.not_equal(rows.column("sign").cast(pa.string()), self.sign),
            f"{self.name} at {geolevel} has another sign than {self.sign}",
        )
        values = values_of(rows, self.n_rows, self.name)[position >= 0]
        position = position[position >= 0]
        np.add.at(self.times_seen, position, 1)
        if self.answers is not None:
            failures[self.check].add_each(
                _COMPARISONS[self.sign](self.answers[position], values).any(axis=1),
                lambda i: f"{geolevel} {self.geocode[int(position[i])]} breaks {self.name}",
            )

    def check_times(self, geolevel: str, failures: Failures) -> None:
        """After all rows: the constraint stands once under each code."""
        failures.add_each(
            self.times_seen != 1,
            lambda i: (
                f"{geolevel} {self.geocode[i]} has constraint {self.name} "
                f"{self.times_seen[i]} times"
            ),
        )


def _due(
    name: str,
    expected: ExpectedUniverse,
    spine: RunSpine,
    level: SpineLevel,
    estimates: LevelEstimates,
) -> Due:
    """A constraint of every geounit of a geolevel or, of states, of every FIPS code."""
    geocode, place, geounit = level.geocode, level.positions, estimates.geounit
    if name == STATE_TOTAL:
        fips, code_of_geounit = state_fips(spine)
        geocode = pa.array(fips)
        place, geounit = partial(positions, known=geocode), code_of_geounit[geounit]
    if name in expected.structural_zeros:
        nobody = np.zeros((len(geocode), 1), dtype=np.int64)
        return Due(name, "=", geocode, place, 1, nobody, "structural_zeros_hold")
    margin, sign = constraint_margin(expected.cells, name), expected_sign(name)
    answers = np.zeros((len(geocode), margin.n_rows), dtype=np.int64)
    np.add.at(answers, (geounit, margin.row_of_cell[estimates.cell]), estimates.count)
    check = "equality_constraints_hold" if sign == "=" else "bounds_hold"
    return Due(name, sign, geocode, place, margin.n_rows, answers, check)


def check_constraint_files(
    run_directory: Path,
    universe: str,
    spine: RunSpine,
    expected: Sequence[ExpectedConstraint],
    failures: Mapping[str, Failures],
) -> None:
    """Check that files have each constraint once wherever it is due, and no others.

    Raises UnusableRunFile for values of another form than lists of so many integers.
    """
    area_of_block = np.argsort(spine.by_geocode)
    due: list[list[Due]] = [[] for _ in spine.levels]
    for one in expected:
        for of_level, (name, codes) in zip(due, _codes(spine, area_of_block, one), strict=True):
            if len(codes):
                place = partial(positions, known=codes)
                of_level.append(Due(name, one.sign, codes, place, one.n_rows))
    for level, of_level in zip(spine.levels, due, strict=True):
        folder = run_directory / "measurements" / universe / level.name / "constraints"
        check_files(folder, level, of_level, failures)


def _codes(
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


def values_of(rows: pa.RecordBatch, width: int, name: str) -> np.ndarray:
    """The value lists as an int64 array of shape `(n_rows, width)`."""
    wrong_width = f"a value of constraint {name} does not have {width} entries"
    other_kind = f"the values of constraint {name} are not lists of integers"
    column = rows.column("value")
    if (lengths_of_lists(column, other_kind, wrong_width) != width).any():
        raise UnusableRunFile(wrong_width)
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1, width)
