"""Noisy measurements: their completeness, the loss of each, and the noise for its loss.

A geounit with a share has each query of its geolevel once, at the total times both shares. Shares
add to 1 on every path of the spine, and those of queries in every geolevel: the measurements on the
path to a block then cost the total exactly. The noise of a loss rho is discrete Gaussian with
sigma^2 = 1 / rho, and of a loss epsilon discrete Laplace of scale 2 / epsilon, between neighbours
of which one record is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..plan import gaussian_variance, laplace_variance
from ..run_files import UnusableRunFile, number_texts, parse_fraction
from .declaration import Budget, Cells
from .estimates import LevelEstimates, lengths_of_lists, read_batches
from .spine import SpineLevel

MEASURED, LOSS = "measurements_are_complete", "measured_loss_is_the_budget"
NOISE = "noise_is_what_its_loss_pays_for"
SUFFIX = "_dpq"
INFINITE = "inf"
RELATIVE_TOLERANCE = 1e-9
ROWS_PER_BATCH = 1 << 9
"""Rows read at once: each has as many values as its query has rows."""


def variance_of_loss(loss: str, *, is_pure: bool) -> float:
    """Variance of the noise that a loss, as a file spells it, pays for; 0 for `inf`.

    Raises UnusableRunFile for a loss that is no positive fraction.
    """
    if loss == INFINITE:
        return 0.0
    value = parse_fraction(loss)
    if not value:
        raise UnusableRunFile("a measurement has a loss of 0")
    return laplace_variance(2 / value) if is_pure else gaussian_variance(1 / value)


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
    variances: dict[str, float] = {}
    for batch in read_batches(
        root / "measurements" / cells.universe / level.name / budget.measurements,
        ("geocode", "query_name", "value", "variance", "plb"),
        as_dictionary=["query_name", "plb"],
        level=level,
        rows_per_batch=ROWS_PER_BATCH,
    ):
        geounit = level.positions(batch.column("geocode"))
        asked, code = number_texts(batch.column("query_name"))
        place = [names.index(name) if name in names else -1 for name in asked]
        query = np.array(place, dtype=np.int64)[code]
        where = f"a measurement at {level.name}"
        failures[MEASURED].add_each(geounit < 0, f"{where} has a geocode outside the spine")
        failures[MEASURED].add_each(query < 0, f"{where} is of a query that is not expected")
        known = (geounit >= 0) & (query >= 0)
        np.add.at(times, (geounit[known], query[known]), 1)
        losses, loss = number_texts(batch.column("plb"))
        for text in losses:
            if text not in variances:
                variances[text] = variance_of_loss(text, is_pure=budget.is_pure)
        _check_losses(budget, list(shares.values()), level, losses, loss, geounit, query, failures)
        lengths = lengths_of_lists(batch.column("value"), "the values of measurements")
        if not budget.on_demand:
            failures[NOISE].add_each(
                (n_rows[query] >= 0) & (lengths != n_rows[query]),
                f"{where} does not have a value for each row of its query",
            )
        wanted = np.array([variances[text] for text in losses])[loss]
        found = batch.column("variance").cast(pa.float64()).to_numpy()
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


def _check_losses(
    budget: Budget,
    query_shares: list[Fraction],
    level: SpineLevel,
    losses: list[str],
    loss: np.ndarray,
    geounit: np.ndarray,
    query: np.ndarray,
    failures: Mapping[str, Failures],
) -> None:
    """Each loss is the total times both shares, exactly; every kind is compared once."""
    known = (geounit >= 0) & (query >= 0)
    share = level.share_code[geounit[known]].astype(np.int64)
    kind = (share * len(query_shares) + query[known]) * len(losses) + loss[known]
    kinds, kind = np.unique(kind, return_inverse=True)
    wrong = np.zeros(kinds.size, dtype=bool)
    for i, code in enumerate(kinds.tolist()):
        rest, number = divmod(code, len(losses))
        share_code, query_code = divmod(rest, len(query_shares))
        is_infinite = losses[number] == INFINITE
        if budget.total is None or is_infinite:
            wrong[i] = (budget.total is None) != is_infinite
        else:
            due = budget.total * level.shares[share_code] * query_shares[query_code]
            wrong[i] = parse_fraction(losses[number]) != due
    failures[LOSS].add_each(
        wrong[kind], f"a measurement at {level.name} has another plb than the total times shares"
    )


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
    for batch in read_batches(
        root / "measurements" / cells.universe / level.name / budget.measurements,
        ("geocode", "query_name", "row", "value"),
        as_dictionary=["query_name"],
        level=level,
        rows_per_batch=ROWS_PER_BATCH,
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
