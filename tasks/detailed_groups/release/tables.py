"""The rows of tables T01001 and T02001 to T02003, as columns.

Every released group has its total (T01001). The groups with cells also have rows of sex by age, in
the table that the mechanism chose for them, and a marginal of each sex.

Regions are named as far as their codes tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...census.cef_2020 import state_of
from ...tables.columns import coded_texts
from ..postprocess.groups import CODE, codes_of, counts_of, mask_of
from ..workload.iterations import AGE_BINS, OLDEST_AGE
from ..workload.tabulations import KEY, SEX_BY_AGE
from .count_margins import CountNoise

TABLE_NAMES = SEX_BY_AGE.names
"""Table of each statistics level; every group has the first."""

ALL_AGES = -1
TOTAL, MALE, FEMALE = 0, 1, 2
SEXES = ("total", "male", "female")

NAMED = (
    ("region_type", CODE),
    ("region_id", CODE),
    ("region_name", CODE),
    ("iteration_code", CODE),
    ("iteration_name", CODE),
    ("iteration_level", pa.int8()),
)
"""The names of a count's group, with which the rows of tidy files begin."""

COUNTED = (
    ("count", pa.int64()),
    ("variance", pa.float64()),
    ("margin", pa.int32()),
    ("margin_if_cut", pa.int32()),
)
"""Columns of tidy files: `variance` is that of the noise in the count, `margin` the smallest number
that the noise stays within with the probability that was asked for, and `margin_if_cut` one that
holds whatever counts below 0 became 0 before they were added."""

TIDY = pa.schema(
    [
        *NAMED,
        ("table", CODE),
        ("sex", CODE),
        ("age_start", pa.int16()),
        ("age_end", pa.int16()),
        *COUNTED,
        ("measured_at", CODE),
    ]
)
"""Columns of the tidy file: ages are null for marginals, and `measured_at` is the region type whose
measurement the count is (another than the group's own in a coterminous region)."""


@dataclass(frozen=True)
class GroupNames:
    """Names for the tidy file.

    `iteration_name` and `iteration_level` are by iteration code; `region_name` by region type
    and id, for regions that have a better name than their codes.
    """

    iteration_name: Mapping[str, str]
    iteration_level: Mapping[str, int]
    region_name: Mapping[Region, str]

    def of_region(self, region_type: str, region_id: str) -> str:
        """A region's name."""
        given = self.region_name.get((region_type, region_id))
        return given or name_of_codes(region_type, region_id)


@dataclass(frozen=True)
class CountRows:
    """One row for each released count; arrays of shape (n_rows,).

    `group` is the position of the count's group; `sex` is `TOTAL`, `MALE` or `FEMALE`; ages run
    from `age_start` to `age_end`, both included, and are `ALL_AGES` for a marginal; `n_cells` is
    the number of noisy counts that `count` is the sum of.
    """

    group: np.ndarray
    sex: np.ndarray
    age_start: np.ndarray
    age_end: np.ndarray
    count: np.ndarray
    n_cells: np.ndarray


def count_rows(groups: pa.Table) -> CountRows:
    """All rows of some released groups, group after group.

    `groups` has the columns `COUNTED`, none suppressed. A group with 4, 9 or 23 ages has its
    total, then for men and then for women the marginal followed by the ages: 11, 21 or 49 rows.
    """
    table = groups["table"].to_numpy()
    n_bins = np.array([len(AGE_BINS.get(t, ())) for t in range(len(TABLE_NAMES))])
    n_rows = np.where(table > 0, 3 + 2 * n_bins[table], 1)
    first = np.cumsum(n_rows) - n_rows
    rows = CountRows(
        group=np.repeat(np.arange(table.size), n_rows),
        sex=np.zeros(n_rows.sum(), dtype=np.int8),
        age_start=np.full(n_rows.sum(), ALL_AGES, dtype=np.int16),
        age_end=np.full(n_rows.sum(), ALL_AGES, dtype=np.int16),
        count=np.empty(n_rows.sum(), dtype=np.int64),
        n_cells=np.ones(n_rows.sum(), dtype=np.int16),
    )
    rows.count[first] = groups["total"].to_numpy()
    counts, offsets = counts_of(groups)
    marginals = np.stack([groups[sex].fill_null(0).to_numpy() for sex in SEXES[1:]], axis=1)
    for statistics_level, bins in AGE_BINS.items():
        members = np.flatnonzero(table == statistics_level)
        if not members.size:
            continue
        cells = counts[offsets[members][:, None] + np.arange(2 * len(bins))]
        cells = cells.reshape(-1, 2, len(bins))
        with_marginals = np.concatenate([marginals[members][:, :, None], cells], axis=2)
        where = first[members][:, None] + 1 + np.arange(2 * (len(bins) + 1))
        rows.count[where] = with_marginals.reshape(members.size, -1)
        rows.sex[where] = np.repeat([MALE, FEMALE], len(bins) + 1)
        rows.age_start[where] = np.tile([ALL_AGES, *bins], 2)
        rows.age_end[where] = np.tile([ALL_AGES, *(b - 1 for b in bins[1:]), OLDEST_AGE], 2)
        rows.n_cells[where] = np.tile([len(bins), *[1] * len(bins)], 2)
        rows.n_cells[first[members]] = 2 * len(bins)
    return rows


def t1_rows(groups: pa.Table, rows: CountRows) -> pa.Table:
    """Rows of the production program's file t1: REGION_ID, REGION_TYPE, ITERATION_CODE, COUNT."""
    own = rows.sex == TOTAL
    keys = production_keys(groups, rows.group[own])
    return pa.table({**keys, "COUNT": pa.array(rows.count[own])})


def t2_rows(groups: pa.Table, rows: CountRows) -> pa.Table:
    """Rows of its file t2: the keys, AGESTART, AGEEND (`*` for a marginal), SEX (1, 2), COUNT."""
    own = rows.sex != TOTAL
    ages = ["*", *map(str, range(OLDEST_AGE + 1))]
    return pa.table(
        {
            **production_keys(groups, rows.group[own]),
            "AGESTART": coded_texts(rows.age_start[own] - ALL_AGES, ages),
            "AGEEND": coded_texts(rows.age_end[own] - ALL_AGES, ages),
            "SEX": coded_texts(rows.sex[own], ["", "1", "2"]),
            "COUNT": pa.array(rows.count[own]),
        }
    )


def tidy_rows(groups: pa.Table, rows: CountRows, names: GroupNames, noise: CountNoise) -> pa.Table:
    """One row for each released count with names and margins, columns `TIDY`."""
    table = groups["table"].to_numpy()[rows.group]
    table = np.where(rows.sex == TOTAL, 0, table)
    ages = {
        name: pa.array(values, pa.int16(), mask=values == ALL_AGES)
        for name, values in (("age_start", rows.age_start), ("age_end", rows.age_end))
    }
    counted = count_columns(
        groups, rows.group, rows.count, rows.n_cells, names, noise, measured_at="measured_at"
    )
    return pa.table(
        {
            **counted,
            "measured_at": groups["measured_at"].take(rows.group),
            "table": coded_texts(table, list(TABLE_NAMES)),
            "sex": coded_texts(rows.sex, list(SEXES)),
            **ages,
        }
    ).select(TIDY.names)


def count_columns(
    groups: pa.Table,
    group: np.ndarray,
    count: np.ndarray,
    n_cells: np.ndarray,
    names: GroupNames,
    noise: CountNoise,
    *,
    measured_at: str,
) -> dict[str, pa.Array]:
    """The columns of tidy files that tell whose counts `count` are and how exact they are.

    `group` (n,) is the position of each one's group, `n_cells` (n,) how many noisy counts it sums;
    `measured_at` names the column with the region type whose measurement it is.
    """
    columns = {name: groups[name].take(group) for name in KEY}
    columns["region_name"] = named_regions(groups, names).take(group)
    iteration, codes = codes_of(groups, "iteration_code")
    called = coded_texts(iteration, [names.iteration_name[code] for code in codes])
    level = np.array([names.iteration_level[code] for code in codes], dtype=np.int8)
    level_of_row = level[iteration][group]
    place, places = codes_of(groups, measured_at)
    margin, margin_if_cut = noise.margins(
        (place[group], places), level_of_row, mask_of(groups, "total_only")[group], n_cells
    )
    return {
        **columns,
        "iteration_name": called.take(group),
        "iteration_level": pa.array(level_of_row),
        "count": pa.array(count),
        "variance": pa.array(groups["variance"].to_numpy()[group] * n_cells),
        "margin": pa.array(margin),
        "margin_if_cut": pa.array(margin_if_cut),
    }


def production_keys(groups: pa.Table, group: np.ndarray) -> dict[str, pa.ChunkedArray]:
    """The first columns of the production program's files, given each row's group (n,)."""
    columns = ("region_id", "region_type", "iteration_code")
    return {name.upper(): groups[name].take(group) for name in columns}


def named_regions(groups: pa.Table, names: GroupNames) -> pa.DictionaryArray:
    """The name of every group's region, coded."""
    (kind, kinds), (region, ids) = (codes_of(groups, name) for name in ("region_type", "region_id"))
    pairs, code = np.unique(kind.astype(np.int64) * len(ids) + region, return_inverse=True)
    found = [names.of_region(kinds[p // len(ids)], ids[p % len(ids)]) for p in pairs.tolist()]
    return coded_texts(code, found)


Region = tuple[str, str]
"""A region's type and id."""


def name_of_codes(region_type: str, region_id: str) -> str:
    """A name made of a region's codes, for want of a better one.

    >>> name_of_codes("TRACT", "44003020601")
    'Census Tract 206.01, County 003, Rhode Island'
    """
    kind = region_type.removeprefix("PR-")
    if kind == "USA":
        return "United States"
    if kind == "AIANNH":
        return f"AIANNH area {region_id}"
    state, rest = state_of(region_id[:2]).name, region_id[2:]
    if kind == "STATE":
        return state
    if kind == "TRACT":
        return f"Census Tract {_tract_number(rest[3:])}, County {rest[:3]}, {state}"
    return f"{'Place' if kind == 'PLACE' else 'County'} {rest}, {state}"


def _tract_number(code: str) -> str:
    """The number of a tract as it is written: 206 for 020600, 206.01 for 020601."""
    base, suffix = code[:4].lstrip("0") or "0", code[4:]
    return base if suffix == "00" else f"{base}.{suffix}"
