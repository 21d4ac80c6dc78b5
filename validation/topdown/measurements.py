"""Checks of the estimates and of the noisy measurements of geounits.

Estimates are counts, and children add up to their parents. Each geounit with a share has one
measurement of every query of its geolevel; its loss is the total loss times the share of the
geounit times the share of the query. The shares of geounits sum to 1 on every path of the spine,
and the shares of queries sum to 1 in every geolevel: so the measurements on the path to a block
cost exactly the total. Neighbouring datasets differ in one changed record. Noise with a loss rho is
discrete Gaussian with sigma^2 = 1 / rho; noise with a loss epsilon is discrete Laplace with scale
2 / epsilon.

Files of a geolevel are read column by column and in batches. For a part of a geolevel only the rows
of its geounits are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ..outcome import Failures
from ..plan import gaussian_variance, laplace_variance
from ..run_files import ROWS_PER_BATCH, UnusableRunFile, number_texts, read_batches
from .declaration import Budget, Cells, incidence
from .spine import SpineLevel

MEASURED, LOSS = "measurements_are_complete", "measured_loss_is_the_budget"
NOISE = "noise_is_what_its_loss_pays_for"
SUFFIX = "_dpq"
INFINITE = "inf"
RELATIVE_TOLERANCE = 1e-9
ANSWERS_PER_BATCH = 1 << 9
"""Rows read at once; a row of the file has one value for each row of its query."""


def batches_of_level(
    folder: Path,
    columns: Sequence[str],
    level: SpineLevel,
    as_dictionary: Sequence[str] = (),
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Read columns of all Parquet files of a folder in batches; for a part of a geolevel, only the
    rows of its geounits. Raises UnusableRunFile as `read_batches` does."""
    may_hold = level.has_between if level.is_part else None
    for batch in read_batches(folder, columns, as_dictionary, rows_per_batch, may_hold):
        if level.is_part:
            is_here = level.positions(batch.column("geocode")) >= 0
            batch = batch if is_here.all() else batch.filter(pa.array(is_here))
        yield batch


def lengths_of_lists(numbers: pa.Array, what: str) -> np.ndarray:
    """Number of integers in each list, shape `(n,)`.

    Raises UnusableRunFile, with the subject `what`, if the column has no lists of integers, or if
    an integer is missing.
    """
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    is_list = any(is_kind(numbers.type) for is_kind in kinds)
    if not is_list or not pa.types.is_integer(numbers.type.value_type):
        raise UnusableRunFile(f"{what} are no lists of integers")
    if numbers.flatten().null_count:
        raise UnusableRunFile(f"{what} have a missing integer")
    return pc.list_value_length(numbers).to_numpy(zero_copy_only=False).astype(np.int64)


def count_unknown(folder: Path, level: SpineLevel) -> int:
    """Count rows whose geocode is not in the geolevel, in all Parquet files of a folder."""
    n_unknown = 0
    for batch in read_batches(folder, ["geocode"]):
        n_unknown += int((level.positions(batch.column("geocode")) < 0).sum())
    return n_unknown


def read_estimates(
    root: Path, universe: str, level: SpineLevel, n_cells: int, failures: Failures
) -> sparse.csr_array:
    """Read the estimates of a geolevel or a part of one, and check that they are counts.

    Counts are positive integers, cells are in 0 .. n_cells - 1, geocodes are in the spine, and each
    cell of a geounit appears once. Entries that break a rule are recorded and skipped (counts of a
    repeated cell are added up), so that the other checks can continue.

    Returns:
        The counts of the level's geounits, `(n, n_cells)`.

    Raises:
        UnusableRunFile: There is no file, or a column has another type.
    """
    folder = root / "estimates" / universe / level.name
    if not any(folder.glob("*.parquet")):
        raise UnusableRunFile(f"there are no estimates at estimates/{universe}/{level.name}")
    found = [np.zeros((3, 0), dtype=np.int64)]
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
        found.append(np.array([geounit, cell, count])[:, valid])
    geounit, cell, count = np.concatenate(found, axis=1)
    counts = sparse.csr_array(sparse.coo_array((count, (geounit, cell)), (level.n, n_cells)))
    if n_repeated := count.size - counts.nnz:
        failures.add(f"the estimates of {level.name} have a cell of a geounit twice", n_repeated)
    return counts


def check_children_add_to_parents(
    parents: SpineLevel,
    of_parents: sparse.csr_array,
    children: SpineLevel,
    of_children: sparse.csr_array,
    failures: Failures,
) -> None:
    """Check that in every cell the children's estimates add up to their parent's."""
    sums = incidence(children.parent, parents.n).T @ of_children
    off = sparse.coo_array(sums - of_parents)
    failures.add_each(
        off.data != 0,
        lambda i: (
            f"in cell {off.col[i]} of {parents.describe(off.row[i])} "
            f"the children's sum is off by {off.data[i]:+d}"
        ),
    )


def check_measurements(
    root: Path,
    cells: Cells,
    budget: Budget,
    level: SpineLevel,
    failures: Mapping[str, Failures],
) -> None:
    """Check the noisy measurements of a geolevel, or of a part of one.

    - Completeness: a geounit with a share above 0 has exactly one measurement of each query of its
      geolevel; a geounit without a share has no measurement; there are no other measurements.
    - Loss: the `plb` of a measurement is the total times the geounit's share times the query's
      share, or `inf` in a run without noise.
    - Noise: a measurement has an integer for each row of its query, unless it was measured on
      demand; its variance follows from its loss, and is 0 only in a run without noise.

    Raises UnusableRunFile for a file of another layout.
    """
    shares = budget.queries[level.name]
    names = [query + SUFFIX for query in shares]
    n_rows = np.array([*(cells.n_rows(query) for query in shares), -1])
    n_measured = np.zeros((level.n, len(names)), dtype=np.int32)
    expected = [[_noise_of(budget, own * of) for of in shares.values()] for own in level.shares]
    variances = np.array([[variance for _, variance in own] for own in expected])
    where = f"a measurement at {level.name}"
    for batch in batches_of_level(
        root / "measurements" / cells.universe / level.name / budget.measurements,
        ("geocode", "query_name", "value", "variance", "plb"),
        level,
        ["query_name", "plb"],
        rows_per_batch=ANSWERS_PER_BATCH,
    ):
        geounit = level.positions(batch.column("geocode"))
        found_names, code = number_texts(batch.column("query_name"))
        number = [names.index(name) if name in names else -1 for name in found_names]
        query = np.array(number, dtype=np.int64)[code]
        failures[MEASURED].add_each(geounit < 0, f"{where} has a geocode outside the spine")
        failures[MEASURED].add_each(query < 0, f"{where} is of a query that is not expected")
        known = (geounit >= 0) & (query >= 0)
        np.add.at(n_measured, (geounit[known], query[known]), 1)
        share_and_query = level.share_code[geounit[known]], query[known]
        texts, loss = number_texts(batch.column("plb"))
        code_of = {text: code for code, text in enumerate(texts)}
        losses = np.array([[code_of.get(text, -1) for text, _ in own] for own in expected])
        failures[LOSS].add_each(
            loss[known] != losses[share_and_query],
            f"{where} has another plb than the total times shares",
        )
        lengths = lengths_of_lists(batch.column("value"), "the values of measurements")
        if not budget.on_demand:
            failures[NOISE].add_each(
                (n_rows[query] >= 0) & (lengths != n_rows[query]),
                f"{where} does not have a value for each row of its query",
            )
        variance, wanted = batch.column("variance").to_numpy()[known], variances[share_and_query]
        failures[NOISE].add_each(
            ~(np.abs(variance - wanted) <= RELATIVE_TOLERANCE * wanted),
            f"{where} has another variance than its loss pays for",
        )
        if budget.total is not None:
            failures[NOISE].add_each(variance <= 0, f"{where} carries no noise")
    failures[MEASURED].add_each(
        (n_measured != level.is_measured[:, None]).ravel(),
        lambda i: (
            f"{level.describe(i // len(names))}, share "
            f"{level.shares[level.share_code[i // len(names)]]}, has "
            f"{names[i % len(names)]} {n_measured.flat[i]} times"
        ),
    )


def _noise_of(budget: Budget, share: Fraction) -> tuple[str, float]:
    """The loss of a share of the budget, as text in files, and the variance of its noise."""
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
    above: sparse.csr_array,
    failures: Failures,
) -> None:
    """Check that measurements on demand have the demanded rows, and no others.

    A geounit demands a row of a query if the row counts a cell with a positive estimate in its
    parent; the root demands a row if it counts a cell that is no structural zero. A geounit that is
    an only child, or whose parent has no records, demands no rows: the parent's estimate determines
    its counts.

    above : estimates of the geolevel above, in the positions of `level.parent`; of the root, ones
        `(1, n_cells)` in the cells that are no structural zeros.

    Raises UnusableRunFile for a file of another layout.
    """
    is_root, parent = level.parent.min() < 0, np.maximum(level.parent, 0)
    has_choice = (np.bincount(parent, minlength=above.shape[0]) > 1) | is_root
    geounit, cell = above.nonzero()
    geounit, cell = geounit[has_choice[geounit]].astype(np.int64), cell[has_choice[geounit]]
    demands = {}
    for name in budget.queries[level.name]:
        n_rows = cells.n_rows(name)
        demands[name + SUFFIX] = np.unique(geounit * n_rows + cells.rows(name)[cell]), n_rows
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
    """Whether each of the measurements `(n,)` of one query has other rows than its parent demands.

    demanded : ascending keys `parent * n_rows + row` of all demanded rows.
    """
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
