"""The counts and answers of geounits, and the noisy measurements.

Estimates are counts, and children add to their parents. A geounit with a share has each query of
its geolevel once, at the total times both shares. Shares add to 1 on every path of the spine, and
those of queries in every geolevel: the measurements on the path to a block then cost the total
exactly. The noise of a loss rho is discrete Gaussian with sigma^2 = 1 / rho, and of a loss epsilon
discrete Laplace of scale 2 / epsilon, between neighbours of which one record is another.

Files of a geolevel are read column by column and in batches; where a level is a part of its
geolevel, its geounits alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ..outcome import Failures
from ..plan import gaussian_variance, laplace_variance
from ..run_files import ROWS_PER_BATCH, UnusableRunFile, number_texts, read_batches
from .declaration import Budget, Cells
from .spine import SpineLevel

MEASURED, LOSS = "measurements_are_complete", "measured_loss_is_the_budget"
NOISE = "noise_is_what_its_loss_pays_for"
SUFFIX = "_dpq"
INFINITE = "inf"
RELATIVE_TOLERANCE = 1e-9
ANSWERS_PER_BATCH = 1 << 9
"""Rows read at once: each has as many values as its query has rows."""


def batches_of_level(
    folder: Path,
    columns: Sequence[str],
    level: SpineLevel,
    as_dictionary: Sequence[str] = (),
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The columns of all Parquet files of a folder, in batches; of a part of a geolevel, only the
    rows of its geounits. Raises UnusableRunFile as `read_batches` does."""
    may_hold = level.has_between if level.is_part else None
    for batch in read_batches(folder, columns, as_dictionary, rows_per_batch, may_hold):
        if level.is_part:
            is_here = level.positions(batch.column("geocode")) >= 0
            batch = batch if is_here.all() else batch.filter(pa.array(is_here))
        yield batch


def lengths_of_lists(numbers: pa.Array, what: str) -> np.ndarray:
    """Number of integers of each list, shape `(n,)`; raises UnusableRunFile, naming `what`, for
    columns that are no lists of integers and for a missing integer.
    """
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    is_list = any(is_kind(numbers.type) for is_kind in kinds)
    if not is_list or not pa.types.is_integer(numbers.type.value_type):
        raise UnusableRunFile(f"{what} are no lists of integers")
    if numbers.flatten().null_count:
        raise UnusableRunFile(f"of {what} one is missing")
    return pc.list_value_length(numbers).to_numpy(zero_copy_only=False).astype(np.int64)


def count_unknown(folder: Path, level: SpineLevel) -> int:
    """Count the rows of all Parquet files of a folder whose geocode is not of the geolevel."""
    n_unknown = 0
    for batch in read_batches(folder, ["geocode"]):
        n_unknown += int((level.positions(batch.column("geocode")) < 0).sum())
    return n_unknown


@dataclass(frozen=True)
class LevelEstimates:
    """The non-zero cells of one geolevel's estimates.

    `key = geounit position * n_cells + cell`, ascending and without repetition; `count` is the
    number of records, both int64 of shape `(n_nonzero,)`.
    """

    n_cells: int
    key: np.ndarray
    count: np.ndarray

    def part(self, geounits: np.ndarray) -> LevelEstimates:
        """Those of the geounits at these ascending positions, which are numbered from 0."""
        here = np.minimum(np.searchsorted(geounits, self.geounit), geounits.size - 1)
        kept = geounits[here] == self.geounit
        return LevelEstimates(
            self.n_cells, here[kept] * self.n_cells + self.cell[kept], self.count[kept]
        )

    @property
    def geounit(self) -> np.ndarray:
        """Position of each entry's geounit."""
        return self.key // self.n_cells

    @property
    def cell(self) -> np.ndarray:
        """Cell of each entry."""
        return self.key % self.n_cells

    def counts(self, n: int) -> sparse.csr_array:
        """The counts of n geounits, `(n, n_cells)`."""
        shape = n, self.n_cells
        return sparse.csr_array(sparse.coo_array((self.count, (self.geounit, self.cell)), shape))


def no_estimates(n_cells: int) -> LevelEstimates:
    """Estimates in which every cell is zero."""
    return LevelEstimates(n_cells, np.zeros(0, np.int64), np.zeros(0, np.int64))


def read_estimates(
    root: Path, universe: str, level: SpineLevel, n_cells: int, failures: Failures
) -> LevelEstimates:
    """Read the estimates of a geolevel or a part of one, and check that they are counts.

    Counts are positive integers, cells are in 0 .. n_cells - 1, geocodes are those of the spine,
    and each cell of a geounit appears once. Entries that break a rule are recorded and skipped
    (repeated ones are added up), so that the other checks can go on.

    Raises UnusableRunFile if there is no file, or a column has another type.
    """
    folder = root / "estimates" / universe / level.name
    if not any(folder.glob("*.parquet")):
        raise UnusableRunFile(f"there are no estimates at estimates/{universe}/{level.name}")
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in batches_of_level(folder, ["geocode", "cell", "count"], level):
        for name in ("cell", "count"):
            column = batch.column(name)
            if not pa.types.is_integer(column.type):
                raise UnusableRunFile(
                    f"column {name} of estimates/{universe}/{level.name} is not of an integer type"
                )
        geounit = level.positions(batch.column("geocode"))
        cell = batch.column("cell").to_numpy().astype(np.int64)
        count = batch.column("count").to_numpy().astype(np.int64)
        is_cell = (cell >= 0) & (cell < n_cells)
        where = f"the estimates of {level.name}"
        failures.add_each(geounit < 0, f"{where} have a geocode outside the spine")
        failures.add_each(~is_cell, f"{where} have a cell outside the schema")
        failures.add_each(count < 1, f"{where} have a count below 1")
        valid = (geounit >= 0) & is_cell & (count >= 1)
        keys.append(geounit[valid] * n_cells + cell[valid])
        counts.append(count[valid])
    all_keys = np.concatenate(keys)
    key, count = sum_counts(all_keys, np.concatenate(counts))
    if key.size < all_keys.size:
        failures.add(
            f"the estimates of {level.name} hold a cell of a geounit twice",
            count=all_keys.size - key.size,
        )
    return LevelEstimates(n_cells, key, count)


def check_children_add_to_parents(
    parents: SpineLevel,
    parent_estimates: LevelEstimates,
    children: SpineLevel,
    child_estimates: LevelEstimates,
    failures: Failures,
) -> None:
    """In every cell, the estimates of a parent's children add to the parent's own."""
    n_cells = parent_estimates.n_cells
    child_key = children.parent[child_estimates.geounit] * n_cells + child_estimates.cell
    key, difference = sum_counts(
        np.concatenate([child_key, parent_estimates.key]),
        np.concatenate([child_estimates.count, -parent_estimates.count]),
    )
    failures.add_each(
        difference != 0,
        lambda i: (
            f"in cell {key[i] % n_cells} of {parents.describe(key[i] // n_cells)} "
            f"the children's sum is off by {difference[i]:+d}"
        ),
    )


def sum_counts(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the sum of each one's counts; fast for keys that ascend."""
    if not keys.size:
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
    return keys[first], np.add.reduceat(counts, first)


def check_measurements(
    root: Path,
    cells: Cells,
    budget: Budget,
    level: SpineLevel,
    failures: Mapping[str, Failures],
) -> None:
    """Check the noisy measurements of a geolevel, or of a part of one.

    Completeness: every geounit with a share above 0 has each query of its geolevel exactly once,
    one without a share has no measurement, and there are no others. Loss: each measurement's `plb`
    is the total times the geounit's share times the query's share, or `inf` in a run without noise.
    Noise: an integer for each row of the query, unless it was measured on demand, and the variance
    of the noise that the loss pays for, which is not 0 unless the run is without noise.

    Raises UnusableRunFile for a file of another layout.
    """
    shares = budget.queries[level.name]
    names = [query + SUFFIX for query in shares]
    n_rows = np.array([*(cells.n_rows(query) for query in shares), -1])
    times = np.zeros((level.n, len(names)), dtype=np.int32)
    due = [[_noise_of(budget, own * query) for query in shares.values()] for own in level.shares]
    due_variance = np.array([[variance for _, variance in own] for own in due])
    where = f"a measurement at {level.name}"
    for batch in batches_of_level(
        root / "measurements" / cells.universe / level.name / budget.measurements,
        ("geocode", "query_name", "value", "variance", "plb"),
        level,
        ["query_name", "plb"],
        rows_per_batch=ANSWERS_PER_BATCH,
    ):
        geounit = level.positions(batch.column("geocode"))
        asked, code = number_texts(batch.column("query_name"))
        place = [names.index(name) if name in names else -1 for name in asked]
        query = np.array(place, dtype=np.int64)[code]
        failures[MEASURED].add_each(geounit < 0, f"{where} has a geocode outside the spine")
        failures[MEASURED].add_each(query < 0, f"{where} is of a query that is not expected")
        known = (geounit >= 0) & (query >= 0)
        np.add.at(times, (geounit[known], query[known]), 1)
        kind = level.share_code[geounit[known]], query[known]
        losses, loss = number_texts(batch.column("plb"))
        number = {text: i for i, text in enumerate(losses)}
        due_loss = np.array([[number.get(text, -1) for text, _ in own] for own in due])
        failures[LOSS].add_each(
            loss[known] != due_loss[kind], f"{where} has another plb than the total times shares"
        )
        lengths = lengths_of_lists(batch.column("value"), "the values of measurements")
        if not budget.on_demand:
            failures[NOISE].add_each(
                (n_rows[query] >= 0) & (lengths != n_rows[query]),
                f"{where} does not have a value for each row of its query",
            )
        found, wanted = batch.column("variance").to_numpy()[known], due_variance[kind]
        failures[NOISE].add_each(
            ~(np.abs(found - wanted) <= RELATIVE_TOLERANCE * wanted),
            f"{where} has another variance than its loss pays for",
        )
        if budget.total is not None:
            failures[NOISE].add_each(found <= 0, f"{where} carries no noise")
    failures[MEASURED].add_each(
        (times != level.is_measured[:, None]).ravel(),
        lambda i: (
            f"{level.describe(i // len(names))}, share "
            f"{level.shares[level.share_code[i // len(names)]]}, has "
            f"{names[i % len(names)]} {times.flat[i]} times"
        ),
    )


def _noise_of(budget: Budget, share: Fraction) -> tuple[str, float]:
    """The loss of a share of the budget, as files spell it, and the variance that it pays for."""
    if budget.total is None:
        return INFINITE, 0.0
    loss = budget.total * share
    if not loss:
        return "0", math.inf
    return str(loss), laplace_variance(2 / loss) if budget.is_pure else gaussian_variance(1 / loss)


def check_demanded(
    root: Path,
    cells: Cells,
    budget: Budget,
    level: SpineLevel,
    above: LevelEstimates | np.ndarray,
    failures: Failures,
) -> None:
    """Measurements on demand have the rows that can matter, and no others.

    A row of a query can matter to a geounit if it counts a cell that its parent's estimate does not
    have empty, or at the root one that is no structural zero. None can where the geounit is an only
    child, or its parent has no records: its counts are then settled.

    above : estimates of the geolevel above, whose geounits the level's `parent` numbers; at the
        root, mask (n_cells,) of the cells that are possible.

    Raises UnusableRunFile for a file of another layout.
    """
    is_root = isinstance(above, np.ndarray)
    parent = np.zeros(level.n, dtype=np.int64) if is_root else level.parent
    if isinstance(above, np.ndarray):
        demanding = np.zeros(1, dtype=np.int64), np.flatnonzero(above)
    else:
        has_choice = np.bincount(parent, minlength=int(above.geounit.max(initial=0)) + 1) > 1
        chosen = has_choice[above.geounit]
        demanding = above.geounit[chosen], above.cell[chosen]
    demands = {}
    for name in budget.queries[level.name]:
        n_rows = cells.n_rows(name)
        rows = cells.rows(name)[demanding[1]]
        if is_root:
            demanded = np.flatnonzero(np.bincount(rows, minlength=n_rows))
        else:
            demanded = np.unique(demanding[0] * n_rows + rows)
        demands[name + SUFFIX] = demanded, n_rows
    for batch in batches_of_level(
        root / "measurements" / cells.universe / level.name / budget.measurements,
        ("geocode", "query_name", "row", "value"),
        level,
        ["query_name"],
        rows_per_batch=ANSWERS_PER_BATCH,
    ):
        geounit = level.positions(batch.column("geocode"))
        name = batch.column("query_name").cast(pa.string())
        for query, (demanded, n_rows) in demands.items():
            own = np.asarray(pc.equal(name, query)) & (geounit >= 0)
            part, here = batch.filter(pa.array(own)), geounit[own]
            failures.add_each(
                _has_other_rows(part, parent[here], demanded, n_rows),
                f"a geounit of {level.name} was measured in other rows than its parent demands",
            )


def _has_other_rows(
    part: pa.RecordBatch, parent: np.ndarray, demanded: np.ndarray, n_rows: int
) -> np.ndarray:
    """Whether measurements (n,) of one query have other rows than the keys `demanded` of their
    parents, parent * n_rows + row, say; these ascend."""
    row, value = part.column("row"), part.column("value")
    lengths = [lengths_of_lists(own, "the rows and values of measurements") for own in (row, value)]
    rows = row.flatten().to_numpy()
    geounit = np.repeat(np.arange(len(parent)), lengths[0])
    keys = np.where((rows >= 0) & (rows < n_rows), parent[geounit] * n_rows + rows, -1)
    first = np.searchsorted(demanded, [parent * n_rows, (parent + 1) * n_rows])
    wrong = (lengths[0] != lengths[1]) | (lengths[0] != first[1] - first[0])
    wrong[geounit[~np.isin(keys, demanded)]] = True
    wrong[geounit[np.flatnonzero((np.diff(rows) <= 0) & (np.diff(geounit) == 0))]] = True
    return wrong
