"""Privacy loss: what a run measured costs exactly its budget along every path of the spine.

All arithmetic is exact. Sums over many geounits are kept as codes into the few distinct sums that
occur, so that fractions are added once for each distinct pair and not once for each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from ..outcome import Failures
from ..run_files import numbered, parse_fraction
from .cells import spelled
from .run_files import ExpectedUniverse, RunSpine, SpineLevel, read_batches
from .shares import path_shares

DPQUERY_SUFFIX = "_dpq"
INFINITE = "inf"


@dataclass(frozen=True)
class CodedSums:
    """Exact numbers: entry i is `sums[code[i]]`."""

    code: np.ndarray
    sums: tuple[Fraction, ...]

    @classmethod
    def zeros(cls, n: int) -> CodedSums:
        """n zeros."""
        return cls(np.zeros(n, dtype=np.int64), (Fraction(0),))

    def plus(self, code: np.ndarray, values: Sequence[Fraction]) -> CodedSums:
        """The entries plus `values[code]`, exactly.

        >>> CodedSums.zeros(2).plus(np.array([0, 1]), [Fraction(1, 2), Fraction(1, 3)]).sums
        (Fraction(1, 2), Fraction(1, 3))
        """
        pairs, pair = np.unique(self.code * len(values) + code, return_inverse=True)
        added = [self.sums[p // len(values)] + values[p % len(values)] for p in pairs.tolist()]
        distinct = {number: i for i, number in enumerate(dict.fromkeys(added))}
        new_code = np.array([distinct[number] for number in added], dtype=np.int64)
        return CodedSums(new_code[pair], tuple(distinct))

    def at(self, positions: np.ndarray) -> CodedSums:
        """The entries at these positions."""
        return CodedSums(self.code[positions], self.sums)


def check_shares(spine: RunSpine, failures: Failures) -> None:
    """Along every path from the root to a block, the geounits' shares add to exactly 1."""
    last = spine.levels[-1]
    sums, denominator = path_shares(
        [level.parent for level in spine.levels],
        [level.shares for level in spine.levels],
        [level.share_code for level in spine.levels],
    )
    failures.add_each(
        sums != denominator,
        lambda i: (
            f"the shares on the path to {last.describe(i)} add to "
            f"{Fraction(int(sums[i]), denominator)}"
        ),
    )


def check_measurements(
    run_directory: Path,
    expected: ExpectedUniverse,
    level: SpineLevel,
    completeness: Failures,
    loss: Failures,
) -> CodedSums:
    """Check the noisy measurements of a geolevel, or of a part of one; returns each geounit's
    privacy loss.

    Completeness: every geounit with a share above 0 has each query of its geolevel exactly once,
    one without has none, and there are no others. Loss: each measurement's `plb` is the total
    times the geounit's share times the query's share, or `inf` in a run without noise (its
    returned losses are 0).

    Raises UnusableRunFile for a `plb` that is no fraction.
    """
    shares = {
        spelled(name) + DPQUERY_SUFFIX: share
        for name, share in expected.query_shares[level.name].items()
    }
    rows = _read_rows(run_directory, expected, level, list(shares), completeness)
    _check_times(level, list(shares), rows, completeness)
    _check_each_loss(expected, shares, level, rows, loss)
    return _sum_by_geounit(level.n, rows)


@dataclass(frozen=True, eq=False)
class _MeasuredRows:
    """Measurements of a geolevel, one a row: `geounit`, `query` and `plb` are positions among the
    level's geounits, the expected queries and `texts`, the spellings of the losses.
    """

    geounit: np.ndarray
    query: np.ndarray
    plb: np.ndarray
    texts: Sequence[str]

    @cached_property
    def is_infinite(self) -> list[bool]:
        """Which spellings stand for no noise."""
        return [text == INFINITE for text in self.texts]

    @cached_property
    def values(self) -> list[Fraction]:
        """The losses spelt out, 0 where there is no noise; raises UnusableRunFile."""
        return [
            Fraction(0) if infinite else parse_fraction(text)
            for text, infinite in zip(self.texts, self.is_infinite, strict=True)
        ]


def _read_rows(
    run_directory: Path,
    expected: ExpectedUniverse,
    level: SpineLevel,
    names: Sequence[str],
    completeness: Failures,
) -> _MeasuredRows:
    """The rows of a geolevel's geounits and expected queries; all others are failures."""
    codes: dict[str, int] = {}
    geounits, queries, plbs = ([np.zeros(0, np.int64)] for _ in range(3))
    measured = run_directory / "measurements" / expected.cells.universe / level.name
    folder = measured / expected.measurements
    columns = ("geocode", "query_name", "plb")
    texts = ["query_name", "plb"]
    for batch in read_batches(folder, columns, as_dictionary=texts, level=level):
        geounit = level.positions(batch.column("geocode"))
        asked, code = numbered(batch.column("query_name"))
        place = [names.index(name) if name in names else -1 for name in asked]
        query = np.array(place, dtype=np.int64)[code]
        spellings, code = numbered(batch.column("plb"))
        place = [codes.setdefault(text, len(codes)) for text in spellings]
        plb = np.array(place, dtype=np.int64)[code]
        completeness.add_each(
            geounit < 0, lambda _: f"a measurement at {level.name} has a geocode outside the spine"
        )
        completeness.add_each(
            query < 0, lambda _: f"a query that is not expected was measured at {level.name}"
        )
        known = (geounit >= 0) & (query >= 0)
        geounits.append(geounit[known])
        queries.append(query[known])
        plbs.append(plb[known])
    return _MeasuredRows(
        np.concatenate(geounits), np.concatenate(queries), np.concatenate(plbs), list(codes)
    )


def _check_times(
    level: SpineLevel, names: Sequence[str], rows: _MeasuredRows, completeness: Failures
) -> None:
    if not names:
        return
    times = np.bincount(rows.geounit * len(names) + rows.query, minlength=level.n * len(names))
    wrong = times.reshape(level.n, len(names)) != level.is_measured[:, None]
    completeness.add_each(
        wrong.ravel(),
        lambda i: (
            f"{level.describe(i // len(names))}, share "
            f"{level.shares[level.share_code[i // len(names)]]}, has "
            f"{names[i % len(names)]} {times[i]} times"
        ),
    )


def _check_each_loss(
    expected: ExpectedUniverse,
    shares: dict[str, Fraction],
    level: SpineLevel,
    rows: _MeasuredRows,
    loss: Failures,
) -> None:
    geounit, query, values, is_infinite = rows.geounit, rows.query, rows.values, rows.is_infinite
    if not geounit.size:
        return
    share = level.share_code[geounit].astype(np.int64)
    combined = (share * len(shares) + query) * len(values) + rows.plb
    distinct, first, kind = np.unique(combined, return_index=True, return_inverse=True)
    query_shares = list(shares.values())
    wrong = np.zeros(distinct.size, dtype=bool)
    for i, code in enumerate(distinct.tolist()):
        rest, plb_code = divmod(code, len(values))
        share_code, query_code = divmod(rest, len(shares))
        if expected.total is None or is_infinite[plb_code]:
            wrong[i] = (expected.total is None) != is_infinite[plb_code]
        else:
            due = expected.total * level.shares[share_code] * query_shares[query_code]
            wrong[i] = values[plb_code] != due
    loss.add_each(
        wrong[kind],
        lambda row: (
            f"{level.describe(geounit[row])} has {list(shares)[query[row]]} at another plb than "
            f"the total times both shares"
        ),
    )


def _sum_by_geounit(n: int, rows: _MeasuredRows) -> CodedSums:
    """Sum of the losses over the rows of each of n geounits."""
    values = rows.values
    order = np.argsort(rows.geounit, kind="stable")
    geounit, plb = rows.geounit[order], rows.plb[order]
    n_rows = np.bincount(geounit, minlength=n)
    start = np.cumsum(n_rows) - n_rows
    sums = CodedSums.zeros(n)
    extended = [*values, Fraction(0)]
    for rank in range(int(n_rows.max(initial=0))):
        has_row = n_rows > rank
        code = np.full(n, len(values), dtype=np.int64)
        code[has_row] = plb[start[has_row] + rank]
        sums = sums.plus(code, extended)
    return sums
