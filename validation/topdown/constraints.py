"""Constraints: invariants hold exactly, bounds hold, structural zeros are empty.

A constraint's name says what it counts: `total_con` and `state_total_con` the total,
`<attribute>_total_con` the marginal of the attribute, `_lb` or `_ub` before `_con` that the value
is a lower or an upper bound. Names of structural zeros are given with the cells they empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, positions
from .cells import Cells, Margin
from .conservation import LevelEstimates
from .run_files import (
    BLOCK,
    ExpectedUniverse,
    RunSpine,
    SpineLevel,
    lengths_of_lists,
    read_batches,
    state_fips,
)

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
    for name, conditions in expected.structural_zeros.items():
        is_zero = expected.cells.where(conditions)
        _refuse_cells(name, is_zero[estimates.cell], level, estimates, failures)

    due = expected.constraints or {}
    names = [name for name, where in due.items() if level.name in where]
    constrained = {name: _Constrained(name, expected, spine, level, estimates) for name in names}
    folder = run_directory / "measurements" / expected.cells.universe / level.name / "constraints"
    for batch in read_batches(folder, COLUMNS, as_dictionary=["query_name", "sign"], level=level):
        name_column = batch.column("query_name")
        for name in pc.unique(name_column).to_pylist():
            rows = batch.filter(pc.equal(name_column, name))
            if name in constrained:
                constrained[name].check_rows(rows, failures)
            else:
                failures["constraints_are_complete"].add(
                    f"constraint {name} is not expected at geolevel {level.name}", rows.num_rows
                )
    for one in constrained.values():
        one.check_times(failures)


def _refuse_cells(
    name: str,
    wrong: np.ndarray,
    level: SpineLevel,
    estimates: LevelEstimates,
    failures: Mapping[str, Failures],
) -> None:
    failures["structural_zeros_hold"].add_each(
        wrong,
        lambda i: (
            f"{level.describe(int(estimates.geounit[i]))} has a count in cell "
            f"{estimates.cell[i]}, which {name} empties"
        ),
    )


def facilities_by_block(
    run_directory: Path, spine: RunSpine, cells: Cells, attribute: str
) -> pa.Table:
    """Public number of group-quarters facilities in each block: block_geocode, facilities.

    They are the lower bounds on the levels of an attribute but the first, one person a facility,
    that the constraints of the universe hold at geolevel Block.
    """
    name = f"{attribute}_total_lb_con"
    level = spine.levels[-1]
    facilities = np.zeros(level.n, dtype=np.int64)
    folder = run_directory / "measurements" / cells.universe / BLOCK / "constraints"
    n_types = cells.sizes[attribute]
    for batch in read_batches(folder, COLUMNS, as_dictionary=["query_name", "sign"]):
        rows = batch.filter(pc.equal(batch.column("query_name"), name))
        block = level.positions(rows.column("geocode"))
        values = values_of(rows, n_types, name)
        facilities[block[block >= 0]] = values[block >= 0, 1:].sum(axis=1)
    return pa.table(
        {"block_geocode": spine.block_geocode, "facilities": facilities[spine.ancestors[-1]]}
    )


class _Constrained:
    """What one constraint of one geolevel is compared with, and how often each geounit had it."""

    def __init__(
        self,
        name: str,
        expected: ExpectedUniverse,
        spine: RunSpine,
        level: SpineLevel,
        estimates: LevelEstimates,
    ) -> None:
        self.name = name
        self.where = level.name
        self.is_structural_zero = name in expected.structural_zeros
        self.geocode = level.geocode
        self._positions = level.positions
        geounit = estimates.geounit
        if name == STATE_TOTAL:
            fips, code_of_geounit = state_fips(spine)
            self.geocode = pa.array(fips)
            self._positions = partial(positions, known=self.geocode)
            geounit = code_of_geounit[geounit]
        self.times_seen = np.zeros(len(self.geocode), dtype=np.int32)
        if self.is_structural_zero:
            self.answers = np.zeros((len(self.geocode), 1), dtype=np.int64)
        else:
            margin = constraint_margin(expected.cells, name)
            self.answers = np.zeros((len(self.geocode), margin.n_rows), dtype=np.int64)
            np.add.at(self.answers, (geounit, margin.row_of_cell[estimates.cell]), estimates.count)

    def check_rows(self, rows: pa.RecordBatch, failures: Mapping[str, Failures]) -> None:
        """Check rows that all have this constraint's name."""
        position = self._positions(rows.column("geocode"))
        sign = expected_sign(self.name)
        failures["constraints_are_complete"].add_each(
            position < 0, lambda _: f"{self.name} at {self.where} has a geocode outside the spine"
        )
        failures["constraints_are_complete"].add_each(
            pc.not_equal(rows.column("sign").cast(pa.string()), sign),
            lambda _: f"{self.name} at {self.where} has another sign than {sign}",
        )
        values = values_of(rows, self.answers.shape[1], self.name)[position >= 0]
        position = position[position >= 0]
        np.add.at(self.times_seen, position, 1)
        broken = _COMPARISONS[sign](self.answers[position], values).any(axis=1)
        if self.is_structural_zero:
            kind = failures["structural_zeros_hold"]
        else:
            kind = failures["equality_constraints_hold"] if sign == "=" else failures["bounds_hold"]
        kind.add_each(
            broken,
            lambda i: f"{self.where} {self.geocode[int(position[i])]} breaks {self.name}",
        )

    def check_times(self, failures: Mapping[str, Failures]) -> None:
        """After all rows: every geounit has the constraint once."""
        failures["constraints_are_complete"].add_each(
            self.times_seen != 1,
            lambda i: (
                f"{self.where} {self.geocode[i]} has constraint {self.name} "
                f"{self.times_seen[i]} times"
            ),
        )


def values_of(rows: pa.RecordBatch, width: int, name: str) -> np.ndarray:
    """The value lists as an int64 array of shape `(n_rows, width)`."""
    wrong_width = f"a value of constraint {name} does not have {width} entries"
    other_kind = f"the values of constraint {name} are not lists of integers"
    column = rows.column("value")
    if (lengths_of_lists(column, other_kind, wrong_width) != width).any():
        raise UnusableRunFile(wrong_width)
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.int64).reshape(-1, width)
