"""The released tables: rows of groups, counts and accuracy, as text and as tidy Parquet files.

Every row is the sum of consecutive counts of its group. For persons every released group has its
total (T01001), and the groups with cells also rows of sex by age, in the table that the mechanism
chose for them, and a marginal of each sex. For households a group's table shows some categories.
Regions are named as far as their codes permit.

For persons t1.csv has the totals and t2.csv sex by age, next to population_groups.parquet; for
households t3.csv has types and t4.csv tenures, next to detailed_households.parquet. The text files,
in the production layout, have a header, `|` between columns, no quotes, and leading zeros. Groups
are processed in their order, in parts, so that memory is bounded by one part. The files appear when
all parts are written, the tidy one last.

A run that is not private is stamped: the text files begin with the line `# NOT PRIVATE` and the
Parquet metadata has the key `spineflow` with that value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ...census.cef_2020 import state_of
from ...noise.quantiles import margin_of_sum
from ...runs import stamps
from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.stamps import parquet_rows
from ...tables.columns import coded_texts
from ..ingest.ingest import Settings, read_run_names, run_parameters, run_specification
from ..postprocess import CODE, codes_of, counts_of, groups_to_release, mask_of, select_released
from ..workload.budgets import LevelBudget, level_budgets
from ..workload.specification import CharacteristicIteration
from ..workload.tabulations import KEY, Tabulation

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
"""Columns of tidy files: `variance` is the noise variance of the count, `margin` the smallest bound
on the noise with the requested probability, and `margin_if_cut` one that holds whatever counts
below 0 became 0 before they were added.
"""

LABELS = {
    "sex": CODE,
    "age_start": pa.int16(),
    "age_end": pa.int16(),
    "category_code": pa.int8(),
    "category": CODE,
}
"""Columns that identify the rows of a group: ages are null for marginals, and `category_code` is
the text files'.
"""


def tidy_schema(tabulation: Tabulation) -> pa.Schema:
    """Columns of the tidy file of a tabulation.

    For persons `measured_at` is the region type of the count's measurement (not the group's own for
    a coterminous region).
    """
    labels = [(name, LABELS[name]) for name in tabulation.labels]
    further = [("measured_at", CODE)] if tabulation.of_persons else []
    return pa.schema([*NAMED, ("table", CODE), *labels, *COUNTED, *further])


@dataclass(frozen=True)
class CountNoise:
    """The noise of a run's released counts.

    levels : by region type and iteration level, the budget of its counts' noise; None
        for no noise.
    coverage : the probability with which a margin holds.
    are_cut : negative counts became 0 before they were added.
    """

    levels: Mapping[tuple[str, int], LevelBudget] | None
    coverage: Fraction
    are_cut: bool = False

    def margins(
        self,
        measured_at: tuple[np.ndarray, Sequence[str]],
        level: np.ndarray,
        total_only: np.ndarray,
        n_cells: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The margin of the noise in each of some counts, and the one that holds for the released
        count despite cutting; each of shape (n,), int32.

        `measured_at` has the region type whose measurement a count is, as positions in a list,
        `level` the iteration level, `total_only` whether the group is measured by a total only, and
        `n_cells` the number of noisy counts that were added.
        """
        place, names = measured_at
        parts = place, level, total_only.astype(int), n_cells
        sizes = tuple(int(part.max()) + 1 for part in parts)
        # Few kinds of counts, many counts of each kind.
        kind, kinds = pd.factorize(np.ravel_multi_index(parts, sizes))
        known = np.zeros((len(kinds), 2), dtype=np.int32)
        for own, (at, of_level, only, n) in enumerate(np.transpose(np.unravel_index(kinds, sizes))):
            known[own] = self._margins(names[at], int(of_level), int(n), is_total_only=bool(only))
        return known[kind, 0], known[kind, 1]

    def _margins(
        self, region_type: str, level: int, n: int, *, is_total_only: bool
    ) -> tuple[int, int]:
        if self.levels is None:
            return 0, 0
        noise = self.levels[region_type, level].of_released(is_total_only=is_total_only)
        parts = ((noise, n),)
        own = margin_of_sum(parts, self.coverage)
        return own, margin_of_sum(parts, self.coverage, are_cut=self.are_cut)


@dataclass(frozen=True)
class GroupNames:
    """Names for the tidy file.

    `iterations` are by code; `region_name` is by region type and id, for regions that have a better
    name than their codes.
    """

    iterations: Mapping[str, CharacteristicIteration]
    region_name: Mapping[Region, str]


@dataclass(frozen=True)
class CountRows:
    """One row for each released count; arrays of shape (n_rows,).

    `group` is the position of the count's group, `label` the row's position among the labels of its
    tabulation, 0 being the total, and `n_cells` the number of noisy counts that `count` sums.
    """

    group: np.ndarray
    label: np.ndarray
    count: np.ndarray
    n_cells: np.ndarray


def count_rows(groups: pa.Table, tabulation: Tabulation, *, are_cut: bool = False) -> CountRows:
    """All rows of some released groups, group after group, each in the order of its table's rows.

    `groups` has the columns `SCREENED`. With `are_cut` negative counts become 0 before they are
    summed.
    """
    table = groups["table"].to_numpy().astype(np.int64)
    counts, offsets = counts_of(groups)
    sums = np.concatenate([[0], np.cumsum(np.maximum(counts, 0) if are_cut else counts)])
    n_of_table = np.array([len(own) for own in tabulation.rows])
    n_rows = n_of_table[table]
    first_of_table = np.cumsum(n_of_table) - n_of_table
    group = np.repeat(np.arange(table.size), n_rows)
    within = np.arange(group.size) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    row = np.concatenate(tabulation.rows)[first_of_table[table[group]] + within]
    label, start, stop = row.T
    at = offsets[group]
    return CountRows(group, label, sums[at + stop] - sums[at + start], stop - start)


def text_schema(columns: Iterable[str]) -> pa.Schema:
    """Columns of a text file in the form of the production program's: REGION_ID, REGION_TYPE,
    ITERATION_CODE, the columns of labels, COUNT.
    """
    return pa.schema([*((name, CODE) for name in (*_TEXT_KEY, *columns)), ("COUNT", pa.int64())])


def text_rows(
    groups: pa.Table,
    rows: CountRows,
    columns: Mapping[str, Sequence[str]],
    mask: np.ndarray | slice,
) -> pa.Table:
    """Some rows, columns `text_schema`."""
    group, label = rows.group[mask], rows.label[mask]
    return pa.table(
        {
            **{name: groups[name.lower()].take(group) for name in _TEXT_KEY},
            **{name: coded_texts(label, list(texts)) for name, texts in columns.items()},
            "COUNT": pa.array(rows.count[mask]),
        },
        text_schema(columns),
    )


_TEXT_KEY = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE")


def tidy_rows(
    groups: pa.Table, tabulation: Tabulation, rows: CountRows, names: GroupNames, noise: CountNoise
) -> pa.Table:
    """One row for each released count with names and margins, columns `tidy_schema`."""
    group, schema = rows.group, tidy_schema(tabulation)
    table = groups["table"].to_numpy()[group]
    if tabulation.of_persons:
        table = np.where(rows.label == 0, 0, table)
    iteration, codes = codes_of(groups, "iteration_code")
    called = coded_texts(iteration, [names.iterations[code].name for code in codes])
    level = np.array([names.iterations[code].level for code in codes], dtype=np.int8)
    level_of_row = level[iteration][group]
    place, places = codes_of(groups, "measured_at")
    margin, margin_if_cut = noise.margins(
        (place[group], places), level_of_row, mask_of(groups, "total_only")[group], rows.n_cells
    )
    columns = {
        **{name: groups[name].take(group) for name in (*KEY, "measured_at")},
        "region_name": named_regions(groups, names).take(group),
        "iteration_name": called.take(group),
        "iteration_level": pa.array(level_of_row),
        "table": coded_texts(table, list(tabulation.names)),
        "count": pa.array(rows.count),
        "variance": pa.array(groups["variance"].to_numpy()[group] * rows.n_cells),
        "margin": pa.array(margin),
        "margin_if_cut": pa.array(margin_if_cut),
    }
    for name, values in tabulation.labels.items():
        if LABELS[name] == CODE:
            columns[name] = coded_texts(rows.label, [*map(str, values)])
        else:
            columns[name] = pa.array(list(values), LABELS[name]).take(pa.array(rows.label))
    return pa.table(columns).select(schema.names)


def named_regions(groups: pa.Table, names: GroupNames) -> pa.DictionaryArray:
    """The name of every group's region, coded."""
    (kind, kinds), (region, ids) = (codes_of(groups, name) for name in ("region_type", "region_id"))
    pairs, code = np.unique(kind.astype(np.int64) * len(ids) + region, return_inverse=True)
    regions = [(kinds[p // len(ids)], ids[p % len(ids)]) for p in pairs.tolist()]
    return coded_texts(code, [names.region_name.get(own) or name_of_codes(*own) for own in regions])


Region = tuple[str, str]
"""A region's type and id."""


def name_of_codes(region_type: str, region_id: str) -> str:
    """A name made of a region's codes, where no other is known.

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
    """The written number of a tract: 206 for 020600, 206.01 for 020601."""
    base, suffix = code[:4].lstrip("0") or "0", code[4:]
    return base if suffix == "00" else f"{base}.{suffix}"


TIDY_FILES = {
    "persons": "population_groups.parquet",
    "households": "detailed_households.parquet",
}
"""The tidy file of a release by kind of record."""

GROUPS_PER_PART = 1 << 18
PIPED = stamps.RowsForm("|", is_quoted=False)


def write_run_release(run: RunDirectory, settings: Settings) -> None:
    """Write the release's files to the folder of the unchecked release."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    tables: list[tuple[Tabulation, Iterable[pa.Table], CountNoise]] = []
    are_cut = not parameters.allow_negative_counts
    for tabulation in parameters.tabulations:
        released = groups_to_release(run, settings, tabulation.name)
        parts = (select_released(groups) for _, groups in released)
        budgets = level_budgets(parameters, specification, tabulation.name)
        levels = None if parameters.infinite else budgets
        tables.append((tabulation, parts, CountNoise(levels, parameters.coverage, are_cut)))
    names = GroupNames(specification.iterations, read_run_names(run))
    write_release(run.unchecked_release, tables, names)


def write_release(
    folder: Path,
    tables: Sequence[tuple[Tabulation, Iterable[pa.Table], CountNoise]],
    names: GroupNames,
) -> None:
    """Write the files of some tabulations of the same records into a folder.

    Args:
        tables: of each tabulation the groups that are released, in parts with the columns
            `SCREENED`, and the noise of their counts.
        names: names of the iterations of all groups, and of regions.
    """
    first = tables[0][0]
    with (
        replacing(folder / TIDY_FILES[first.records]) as path,
        parquet_rows(path, tidy_schema(first), compression_level=1) as tidy,
    ):
        for tabulation, parts, noise in tables:
            with ExitStack() as stack:
                texts = {}
                for name, columns in tabulation.texts.items():
                    part = stack.enter_context(replacing(folder / f"{name}.csv"))
                    lines = stamps.text_rows(part, text_schema(columns), PIPED)
                    texts[name] = stack.enter_context(lines)
                for groups in (own for part in parts for own in slices(part)):
                    rows = count_rows(groups, tabulation, are_cut=noise.are_cut)
                    for name, columns in tabulation.texts.items():
                        mask = np.ones(rows.label.size, dtype=bool)
                        if tabulation.of_persons:
                            # Totals have a file of their own.
                            mask = (rows.label == 0) == (not columns)
                        texts[name].write_table(text_rows(groups, rows, columns, mask))
                    tidy.write_table(tidy_rows(groups, tabulation, rows, names, noise))


def slices(groups: pa.Table) -> Iterator[pa.Table]:
    """Groups in parts of at most `GROUPS_PER_PART`."""
    for start in range(0, groups.num_rows, GROUPS_PER_PART):
        yield groups.slice(start, GROUPS_PER_PART).combine_chunks()
