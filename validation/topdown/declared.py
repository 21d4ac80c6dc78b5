"""Checks of a declared census: its microdata against the estimates and every declaration.

The released rows are counted anew by area and level, from their labels and codes alone, and these
counts are held to structural zeros, exact answers, bounds and relations, and compared with the
estimates. What is declared comes as plain facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ..outcome import Failures, Outcome
from ..run_files import UnusableRunFile, unusable_files_fail
from .cells import Cells, Margin
from .coded_rows import Rows
from .conservation import read_estimates
from .constraints import COMPLETE, ExpectedConstraint, check_constraint_files
from .descriptions import SEPARATOR, ReleasedRows, check_description
from .layout import Layout
from .microdata import agreeing_batches
from .run_checks import CHECKS, MICRODATA, CheckedRun, Findings, settled_failures
from .run_files import ExpectedUniverse

GEOCODE = "block_geocode"
CELL = "cell that codes stand for"
_ROWS = "rows of the file"
DESCRIBED = "codes of the columns that describe a row"

DECLARED_CHECKS: Mapping[str, str] = {
    **{name: text.replace("block", "area") for name, text in CHECKS.items()},
    "held_answers_agree": "with those of the earlier releases, in every area",
    "relations_hold": "linear relations are met by every area",
}
"""Each check's name, and what it found when it passed."""


@dataclass(frozen=True, eq=False)
class ExpectedBound:
    """Bounds on the rows of a query, on the cells `inside` (n_cells,), in every area: `lower` and
    `upper` are (n_areas, n_rows), None for no bound.
    """

    name: str
    query: str
    inside: np.ndarray
    lower: np.ndarray | None
    upper: np.ndarray | None


@dataclass(frozen=True, eq=False)
class ExpectedTie:
    """Answers to a query that are those of another universe of the run.

    inside : (n_cells,) cells that the query counts. row : (n_cells of the other universe,) the
    answer that counts each of its cells, -1 for none.
    """

    query: str
    inside: np.ndarray
    universe: str
    row: np.ndarray


@dataclass(frozen=True, eq=False)
class DeclaredUniverse:
    """What a declaration promises of a universe's release.

    labels : of the levels, by attribute, in the order of the cells' numbers.
    expected : with the layout of the microdata, which is None where they have `columns` and the
        attributes' labels.
    columns : geolevels that are columns of the microdata, from the largest units down.
    count : column that says how many records a row stands for; None for one.
    exact : by name, a query, columns that name a unit, and the answers of each unit by the codes
        in these columns, joined by the unit separator.
    held : by name, a query, the cells (n_cells,) that it counts, and the answers (n_areas, n_rows)
        that every area has, those that are not zero.
    relations : by name, a sign, and weights (n_cells,) of each universe.
    constraints : what files of constraints have.
    tied : by name, answers that are those of another universe of the run.
    """

    expected: ExpectedUniverse
    labels: Mapping[str, Sequence[str]]
    columns: tuple[str, ...]
    count: str | None
    exact: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, Sequence[int]]]]
    bounds: tuple[ExpectedBound, ...]
    held: Mapping[str, tuple[str, np.ndarray, sparse.csr_array]]
    relations: Mapping[str, tuple[str, Mapping[str, np.ndarray]]]
    constraints: tuple[ExpectedConstraint, ...]
    tied: Mapping[str, ExpectedTie] = field(default_factory=dict)

    @property
    def cells(self) -> Cells:
        """The cells of the universe."""
        return self.expected.cells

    @property
    def layout(self) -> Layout | None:
        """The microdata's own columns."""
        return self.expected.layout

    @property
    def checks(self) -> Mapping[str, str]:
        """Those of `DECLARED_CHECKS` that have something to check: what is not declared holds for
        nothing, and a check that says otherwise misleads.
        """
        declared = {
            "constraints_are_complete": self.constraints,
            "structural_zeros_hold": self.expected.structural_zeros,
            "equality_constraints_hold": self.exact,
            "held_answers_agree": {**self.held, **self.tied},
            "bounds_hold": self.bounds,
            "relations_hold": self.relations,
        }
        return {name: text for name, text in DECLARED_CHECKS.items() if declared.get(name, True)}


def check_declared(
    run_directory: Path,
    universes: Mapping[str, DeclaredUniverse],
    areas: pd.DataFrame,
    release_directory: Path,
    found: Mapping[str, Findings],
    *,
    is_private: bool = True,
) -> tuple[Outcome, ...]:
    """Check every universe of a declared census; returns the outcomes of each one's checks.

    `areas` is the frame of areas, whose rows bounds are in the order of. `found` is what pieces of
    the checks have found of the spines and of what is below them.
    """
    expected = {name: universe.expected for name, universe in universes.items()}
    run = CheckedRun(run_directory, expected, release_directory, None, is_private)
    rows: dict[str, ReleasedRows] = {}
    failures = {}
    for name, universe in universes.items():
        failures[name] = settled_failures(run, name, found[name])
        failures[name] |= {check: Failures() for check in DECLARED_CHECKS.keys() - failures[name]}
        with unusable_files_fail(failures[name][MICRODATA]):
            rows[name] = released_rows(
                release_directory / f"mdf_{name}",
                universe,
                areas,
                is_private,
                failures[name][MICRODATA],
            )
    counted = {name: of_universe.counts for name, of_universe in rows.items()}
    for name, universe in universes.items():
        with unusable_files_fail(failures[name][COMPLETE]):
            spine = run.spine(name)
            area = pd.Index(areas[GEOCODE]).get_indexer(spine.block_geocode.to_pylist())
            check_constraint_files(
                run_directory, name, spine, area, universe.constraints, failures[name]
            )
        with unusable_files_fail(*failures[name].values()):
            if name not in counted:
                raise UnusableRunFile(f"the microdata of {name} could not be counted")
            _compare(run, name, areas, counted[name], failures[name][MICRODATA])
            _check_declarations(universe, areas, counted, name, failures[name])
            if universe.layout is not None and universe.layout.described is not None:
                described = universe.layout.described
                if described.universe not in counted:
                    raise UnusableRunFile(
                        f"the microdata of {described.universe} could not be counted"
                    )
                cells, others = universes[described.universe].cells, counted[described.universe]
                check_description(described, rows[name], cells, others, failures[name][MICRODATA])
    return tuple(
        failures[name][check].outcome(check, name, passed)
        for name, universe in universes.items()
        for check, passed in universe.checks.items()
    )


def released_rows(
    stem: Path,
    universe: DeclaredUniverse,
    areas: pd.DataFrame,
    is_private: bool,
    failures: Failures,
) -> ReleasedRows:
    """The released rows, from the Parquet file; the text file must have the same rows, and the
    stamp stand exactly where it is due.
    """
    layout = universe.layout
    wanted = [*universe.columns, *universe.labels, *([universe.count] if universe.count else [])]
    wanted = wanted if layout is None else layout.names
    batches = agreeing_batches(stem, wanted, is_private, failures, has_quotes=layout is None)
    names = [*universe.columns, *(universe.labels if layout is None else [CELL])]
    names += [DESCRIBED] if layout is not None and layout.described is not None else []
    first = _counted(_read(batches, universe, failures), names)
    area = _position(areas, universe.columns, first, failures)
    cell = np.zeros(len(first), dtype=np.int64)
    for attribute, labels in universe.labels.items() if layout is None else ():
        level = pd.Index(labels).get_indexer(first[attribute])
        failures.add_each(level < 0, f"a label of {attribute} is none of its levels")
        cell = cell * len(labels) + np.maximum(level, 0)
    if layout is not None:
        cell = np.maximum(first[CELL].to_numpy().astype(np.int64), 0)
    rows = first[_ROWS].to_numpy(dtype=np.int64)
    shape = (len(areas), universe.cells.n)
    described = first.get(DESCRIBED)
    return ReleasedRows(np.maximum(area, 0), cell, rows, described, shape)


def _differs(first: sparse.csr_array, second: sparse.csr_array) -> np.ndarray:
    """Rows `(n,)` in which two matrices are not the same."""
    return np.asarray(abs(first - second).sum(axis=1)).ravel() > 0


def _read(
    batches: Iterable[pa.RecordBatch], universe: DeclaredUniverse, failures: Failures
) -> Iterator[pa.Table]:
    """Batches of rows by codes of areas and labels, or the cell that they stand for, and the number
    of records of each row.
    """
    n_rows, layout = 0, universe.layout
    for batch in batches:
        if layout is None:
            yield _with_rows(pa.table(batch), universe.count)
            continue
        rows = Rows.decoded(batch, layout)
        for number in rows.numbers.values():
            due = np.arange(n_rows, n_rows + batch.num_rows)
            failures.add_each(number != due, "the rows are not numbered from 0 on")
        n_rows += batch.num_rows
        places = [column.name for column in layout.columns if column.digits is not None]
        columns = dict(zip(universe.columns, batch.select(places).columns, strict=True))
        columns[CELL] = pa.array(rows.cells(layout, universe.cells, failures)[0])
        if layout.described is not None:
            names = list(layout.described.columns)
            frame = batch.select(names).to_pandas().astype(str)
            columns[DESCRIBED] = pa.array(_joined(frame, names))
        yield _with_rows(pa.table(columns), None)


def _with_rows(table: pa.Table, count: str | None) -> pa.Table:
    rows = table[count] if count else pa.array(np.ones(table.num_rows, dtype=np.int64))
    kept = table.drop_columns([count]) if count else table
    return kept.append_column(_ROWS, rows.cast(pa.int64()))


def _counted(batches: Iterable[pa.Table], names: Sequence[str]) -> pd.DataFrame:
    """Rows per combination of labels and codes, sorted."""
    parts = [_summed(batch, names) for batch in batches]
    if not parts:
        return pd.DataFrame({name: [] for name in (*names, _ROWS)})
    frame = _summed(pa.concat_tables(parts), names).to_pandas()
    return frame.sort_values(list(names)).reset_index(drop=True)


def _summed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows of each combination of labels and codes."""
    table = table.cast(pa.schema([*((name, pa.string()) for name in names), (_ROWS, pa.int64())]))
    sums = table.group_by(list(names)).aggregate([(_ROWS, "sum")])
    return sums.select([*names, f"{_ROWS}_sum"]).rename_columns([*names, _ROWS])


def _position(
    areas: pd.DataFrame, columns: Sequence[str], rows: pd.DataFrame, failures: Failures
) -> np.ndarray:
    """Row of each combination's area; -1, and a failure, for codes that no area has."""
    known = pd.Index(_joined(areas, columns))
    found = known.get_indexer(_joined(rows, columns))
    failures.add_each(found < 0, lambda _: "a row has the codes of no area")
    return found


def _joined(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    text = frame[columns[0]].to_numpy(dtype=object)
    for name in columns[1:]:
        text = text + SEPARATOR + frame[name].to_numpy(dtype=object)
    return text


def _compare(
    run: CheckedRun, name: str, areas: pd.DataFrame, counted: sparse.csr_array, failures: Failures
) -> None:
    """The released rows of every area are those of its estimates."""
    spine = run.spine(name)
    last = spine.levels[-1]
    # What is wrong with the estimates themselves has been recorded before.
    of_last = read_estimates(run.directory, name, last, counted.shape[1], Failures())
    area = np.full(last.n, -1)
    area[spine.ancestors[-1]] = pd.Index(areas[GEOCODE]).get_indexer(
        spine.block_geocode.to_pylist()
    )
    entries = of_last.count, (area[of_last.geounit], of_last.cell)
    released = sparse.csr_array(sparse.coo_array(entries, shape=counted.shape))
    failures.add_each(
        _differs(released, counted),
        lambda i: f"the rows of area {areas[GEOCODE].iloc[i]} are not those of its estimates",
    )


def _check_declarations(
    universe: DeclaredUniverse,
    areas: pd.DataFrame,
    counted: Mapping[str, sparse.csr_array],
    name: str,
    failures: Mapping[str, Failures],
) -> None:
    counts, paths = counted[name], areas[GEOCODE]

    def fail_areas(check: str, is_wrong: np.ndarray, what: str) -> None:
        failures[check].add_each(is_wrong, lambda i: f"{what} area {paths.iloc[i]}")

    for zero, conditions in universe.expected.structural_zeros.items():
        has_records = counts @ universe.cells.where(conditions).astype(np.int64) > 0
        fail_areas("structural_zeros_hold", has_records, f"{zero} has records in")
    for exact, (query, columns, answers) in universe.exact.items():
        is_wrong = _misses_answers(universe.cells.margin(query), columns, answers, counts, areas)
        text = f"{exact} is not met by a unit of {', '.join(columns)}"
        failures["equality_constraints_hold"].add_each(is_wrong, text)
    for held, (query, inside, due) in universe.held.items():
        found = _answers(counts, universe.cells.margin(query), inside)
        is_other = _differs(found, due)
        fail_areas("held_answers_agree", is_other, f"{held} is not that of the earlier release in")
    for tied, tie in universe.tied.items():
        margin = universe.cells.margin(tie.query)
        cell = np.flatnonzero(tie.row >= 0)
        ones, shape = np.ones(cell.size, dtype=np.int64), (tie.row.size, margin.n_rows)
        due = counted[tie.universe] @ sparse.csr_array((ones, (cell, tie.row[cell])), shape=shape)
        is_other = _differs(_answers(counts, margin, tie.inside), due)
        fail_areas("held_answers_agree", is_other, f"{tied} is not that of {tie.universe} in")
    for bound in universe.bounds:
        found = _answers(counts, universe.cells.margin(bound.query), bound.inside).toarray()
        is_out = np.zeros(len(areas), dtype=bool)
        if bound.lower is not None:
            is_out |= (found < bound.lower).any(axis=1)
        if bound.upper is not None:
            is_out |= (found > bound.upper).any(axis=1)
        fail_areas("bounds_hold", is_out, f"{bound.name} is not met by")
    for relation, (sign, weights) in universe.relations.items():
        total = np.zeros(len(areas), dtype=np.int64)
        for other, values in weights.items():
            total += counted[other] @ values
        is_out = {"=": total != 0, "<=": total > 0, ">=": total < 0}[sign]
        fail_areas("relations_hold", is_out, f"{relation} is not met by")


def _misses_answers(
    margin: Margin,
    columns: Sequence[str],
    answers: Mapping[str, Sequence[int]],
    counts: sparse.csr_array,
    areas: pd.DataFrame,
) -> np.ndarray:
    """Which units, by the codes in the columns, have other sums than their exact answers."""
    units = pd.Index(answers)
    key = _joined(areas, columns) if columns else np.full(len(areas), "", dtype=object)
    due = np.array(list(answers.values()), dtype=np.int64).reshape(len(units), -1)
    sums = np.zeros((len(units), margin.n_rows), dtype=np.int64)
    found = sparse.coo_array(_answers(counts, margin))
    np.add.at(sums, (units.get_indexer(key)[found.row], found.col), found.data)
    return (sums != due).any(axis=1)


def _answers(
    counts: sparse.csr_array, margin: Margin, inside: np.ndarray | None = None
) -> sparse.csr_array:
    """Sums `(n_areas, n_rows)` of the cells of each row, those `inside` (n_cells,) alone."""
    cell = np.arange(counts.shape[1]) if inside is None else np.flatnonzero(inside)
    ones = np.ones(cell.size, dtype=np.int64)
    shape = (counts.shape[1], margin.n_rows)
    return counts @ sparse.csr_array((ones, (cell, margin.row_of_cell[cell])), shape=shape)
