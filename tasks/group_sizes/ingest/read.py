"""The input of a group-sizes run: read, checked, and turned into a hierarchy and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ....validation.outcome import Outcome
from ....validation.rules import SIZE_RULES, readable, record_rules, size_rules, unit_size_rule
from ...census.cef_2020 import CENSUS, UNITS
from ...census.cef_tables import CefTables, read_blocks
from ...census.census_input import CensusInput
from ...census.counting import RawColumns
from ...census.histograms import block_histogram, read_histogram, write_histogram
from ...census.joins import coded
from ...ledger.identity import store_identity
from ...ledger.recognition import (
    ColumnDigests,
    InputDigest,
    RecordColumn,
    input_digest,
    people_digests,
)
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import cache_unchanged, read_values, write_values
from ...runs.stamps import write_parquet
from ...tables.columns import KeyIndex, number_counts, temporary_files_in, trimmed_texts
from ...tables.findings import (
    InputCheck,
    UnreadableInput,
    accepted_input,
    refusal,
    refuse_unreadable,
)
from ...tables.layouts import Kind
from ...tables.readers import Selection, read_batches
from ...tables.sources import InputFile, single_files
from ...tables.value_tallies import ValueTally
from ..plan import (
    KEEP_ROWS,
    TOPDOWN,
    UNIVERSE,
    Plan,
    calibrate,
    default_mechanism,
    exact_groups_file,
    merged_levels,
    merged_shares,
    plan_file,
    regions_file,
)
from ..settings import GroupSizesSettings
from .regions import (
    RegionHierarchy,
    hierarchy_of_geography,
    read_hierarchy,
    sorted_hierarchy,
    write_hierarchy,
)


@dataclass(frozen=True)
class GroupInput:
    """The input of a run: the hierarchy, and counts (n_leaves, n_sizes) of its groups.

    The columns of `counts` are sizes from `smallest_size` on. `census` is the result of reading
    census tables, None for other inputs, for which `raw` are the columns as read, by leaf.
    """

    hierarchy: RegionHierarchy
    counts: sparse.csr_array
    census: CensusInput | None = None
    smallest_size: int = 0
    raw: Sequence[RecordColumn] = ()

    def digests(self, key: bytes) -> Mapping[str, InputDigest]:
        """Keyed digests by which the ledger recognises these people in another file.

        Those of census tables are the same for every product that reads them. Those of other tables
        include the digest of version 0.1.0, which identified sizes by their columns, so that older
        ledgers recognise them.
        """
        if self.census is not None:
            return self.census.digests(key)
        groups = sparse.coo_array(self.counts)
        regions = self.hierarchy.levels[-1].codes.astype(str)[groups.row]
        columns = {"region": regions, "size": groups.col, "groups": groups.data}
        by_column = input_digest("groups", columns, key)
        # Empty groups hold no people, and the settings decide whether they are given.
        size = groups.col.astype(np.int64) + self.smallest_size
        is_inhabited = size > 0
        people = {
            "region": regions[is_inhabited],
            "people of a group": size[is_inhabited],
            "groups": groups.data[is_inhabited],
        }
        whole = input_digest("groups", people, key).whole
        digest = InputDigest(whole, (by_column.whole,))
        return {"groups": digest.recognised_by(self._people(key), key)}

    def _people(self, key: bytes) -> list[ColumnDigests]:
        """Digests of the sizes of groups, without empty ones, by region."""
        nobody = max(0, 1 - self.smallest_size)
        counts = self.counts[:, nobody:]
        first = self.smallest_size + nobody
        sizes = [str(size) for size in range(first, first + counts.shape[1])]
        levels = [self.hierarchy.ancestors(n) for n in range(len(self.hierarchy.levels) - 1)]
        return people_digests([RecordColumn(counts, sizes), *self.raw], levels, key)


def check_groups(settings: GroupSizesSettings) -> InputCheck[GroupInput]:
    """Read the input that the settings name, and check it against every rule."""
    if settings.input.kind == "census":
        return _check_census(settings)
    kind, tally = settings.input.kind, ValueTally()
    files = single_files(settings.input.paths())
    read: list[Outcome] = []
    try:
        hierarchy = read_hierarchy(files["regions"][0], tally)
        read.append(readable("regions", True))
        if hierarchy is None:
            return tally.checked(tally.rules, files, read, lambda: None)
        (file,), regions, own = files[kind], hierarchy.levels[-1].codes, settings.mechanism
        sizes = SizeRange(settings.smallest_size, own.largest_size, own.top_coded)
        raw = RawColumns(("size" if kind == "sizes" else "quantity",), hierarchy.n_leaves)
        if kind == "sizes":
            counts = count_sizes(file, regions, sizes, tally, raw)
        else:
            counts = count_records(file, regions, sizes, own.largest_quantity, tally, raw)
        read.append(readable(kind, True))
    except UnreadableInput as error:
        outcomes = (*read, readable(error.table, False), *tally.outcomes(tally.rules))
        return InputCheck(outcomes, (error.finding,), None)
    declared = settings.invariants.groups
    if tally.are_met(tally.rules) and not isinstance(declared, bool):
        tally.count(SIZE_RULES.one("total", table=kind), counts.sum() != declared)
    smallest, columns = settings.smallest_size, raw.columns()
    accepted = GroupInput(hierarchy, counts, smallest_size=smallest, raw=columns)
    return tally.checked(tally.rules, files, read, lambda: accepted)


def public_hierarchy(settings: GroupSizesSettings) -> RegionHierarchy:
    """The hierarchy alone, from the file of regions or the geography table; raises InputRefused."""
    files, tally = single_files(settings.input.paths()), ValueTally()
    with refuse_unreadable():
        if settings.input.kind == "census":
            blocks = read_blocks(settings.input.paths()["geography"])
            return _hierarchy_of_census(settings, blocks)[0]
        hierarchy = read_hierarchy(files["regions"][0], tally)
    if hierarchy is None:
        raise refusal(tally.findings(tally.rules, files))
    return hierarchy


def public_plan(settings: GroupSizesSettings) -> Plan:
    """The plan by the public hierarchy alone; the number of groups changes no noise."""
    return plan_of(settings, public_hierarchy(settings), 0)


def plan_of(settings: GroupSizesSettings, hierarchy: RegionHierarchy, groups: int) -> Plan:
    """The plan of a run; raises InputRefused if the settings do not fit the hierarchy."""
    mechanism, spent = settings.mechanism, settings.privacy
    epsilon, rho = (None if spent.infinite else own for own in (spent.epsilon, spent.rho))
    shares = mechanism.levels
    if shares is not None:
        _refuse_level_shares(shares, settings.mechanism.name, hierarchy)
    names, n_regions, quantity = hierarchy.names, hierarchy.n_regions, mechanism.largest_quantity
    plan = Plan(
        mechanism=mechanism.name or default_mechanism(n_regions, quantity=quantity),
        calibration=mechanism.calibration,
        bounded=settings.privacy.neighbors == "bounded",
        quantity=quantity,
        epsilon=epsilon,
        smallest_size=settings.smallest_size,
        largest_size=mechanism.largest_size,
        groups=groups,
        rho=rho,
        is_top_coded=mechanism.top_coded,
        exact_level=exact_level(settings, hierarchy),
    )
    by_level = None if shares is None else [shares[name] for name in names]
    return calibrate(plan, names, n_regions, by_level)


def exact_level(settings: GroupSizesSettings, hierarchy: RegionHierarchy) -> str | None:
    """The level whose regions have public numbers of groups; None if only the total is public.

    For census tables it is the finest, since housing units and facilities are invariant in every
    block, unless the settings name another level or a mechanism that cannot keep them. Raises
    InputRefused for a level that is not there.
    """
    level, mechanism = settings.invariants.level, settings.mechanism.name
    if level is not None and level not in hierarchy.names:
        raise InputRefused(
            f"invariants.level is {level!r}, but the levels of the hierarchy are "
            f"{', '.join(hierarchy.names)}."
        )
    is_root = level is not None and hierarchy.n_regions[hierarchy.names.index(level)] == 1
    if is_root and settings.input.kind != "census":
        raise InputRefused(
            f"invariants.level does nothing: {level} is a single region, whose number of groups "
            "is invariants.groups; remove it, or name a level of several regions."
        )
    if level is None and settings.input.kind == "census" and mechanism in (None, *KEEP_ROWS):
        level = hierarchy.names[-1]
    if level is None or hierarchy.n_regions[hierarchy.names.index(level)] == 1:
        return None
    return level


def _refuse_level_shares(
    shares: Mapping[str, Fraction], mechanism: str | None, hierarchy: RegionHierarchy
) -> None:
    if set(shares) != set(hierarchy.names):
        raise InputRefused(
            f"mechanism.levels has shares of {', '.join(shares)}, but the levels of the hierarchy "
            f"are {', '.join(hierarchy.names)}; give each of these a share."
        )
    first = merged_levels(hierarchy.n_regions)
    own = merged_shares([shares[name] for name in hierarchy.names], hierarchy.n_regions)
    if len(first) > 1 and len(set(first)) == 1:
        raise InputRefused(
            "mechanism.levels does nothing, because all levels have the same region, which is "
            "measured once; remove it."
        )
    if not own[first[-1]]:
        raise InputRefused(
            f"mechanism.levels gives the finest level, {hierarchy.names[-1]}, no share; without "
            "one its counts would be guesses, so leave the level out of the hierarchy instead."
        )
    if mechanism == TOPDOWN and not own[0]:
        raise InputRefused(
            f"mechanism.levels gives {hierarchy.names[0]} no share, where topdown begins; choose "
            "another mechanism."
        )


def _check_census(settings: GroupSizesSettings) -> InputCheck[GroupInput]:
    check = CefTables.of(CENSUS, {"units": UNITS}, settings.input.paths()).check()
    if check.result is None:
        return InputCheck(check.outcomes, check.findings, None, check.files)
    result, units = check.result, check.result.referred["persons"]
    largest = settings.mechanism.largest_size
    tally = ValueTally()
    if not settings.mechanism.top_coded:
        tally.count(unit_size_rule(largest), (units.records > largest).sum())
    hierarchy, of_block = _hierarchy_of_census(settings, result.geography)
    counts = block_histogram(
        of_block[units.area],
        np.minimum(units.records, largest),
        n_blocks=hierarchy.n_leaves,
        n_cells=largest + 1,
    )
    accepted, files = GroupInput(hierarchy, counts, result), single_files(settings.input.paths())
    found = tally.checked(tally.rules, files, check.outcomes, lambda: accepted)
    return replace(found, files=check.files)


def _hierarchy_of_census(
    settings: GroupSizesSettings, geography: pd.DataFrame
) -> tuple[RegionHierarchy, np.ndarray]:
    """`hierarchy_of_geography` of the levels in the settings."""
    name = settings.input.paths()["geography"].rpartition("/")[2]
    return hierarchy_of_geography(geography, settings.geography.levels, name)


@cache_unchanged(regions_file, at_most=1)
def read_regions(run: RunDirectory) -> RegionHierarchy:
    """The hierarchy of a run, which is not to be changed."""
    rows = pq.read_table(regions_file(run)).to_pandas()
    return sorted_hierarchy(rows, list(dict.fromkeys(rows["level"])))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run."""
    return read_values(plan_file(run), Plan)


def exact_groups(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> np.ndarray | None:
    """The public numbers of groups in the order of the regions; None if only the total is."""
    if plan.exact_level is None:
        return None
    table = pq.read_table(exact_groups_file(run)).to_pandas().set_index("region")
    level = hierarchy.levels[hierarchy.names.index(plan.exact_level)]
    return table["groups"].reindex(level.codes).to_numpy(dtype=np.int64)


def true_counts(run: RunDirectory, hierarchy: RegionHierarchy, plan: Plan) -> list[np.ndarray]:
    """Confidential counts (n, n_sizes) of every level, root first."""
    finest = read_histogram(
        run.histogram(UNIVERSE), hierarchy.levels[-1].codes, n_cells=plan.n_sizes
    )
    return hierarchy.sum_up(finest.toarray())


def ingest_groups(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Write the public hierarchy and plan, and the confidential counts of a run.

    The plan comes last: where it is, all is. Raises InputRefused for input that breaks a rule; its
    counts are then in `confidential/findings.json`, and for input that is not confidential in the
    message too.
    """
    with temporary_files_in(run.confidential):
        check = check_groups(settings)
    accepted = accepted_input(run, settings, check)
    plan = plan_of(settings, accepted.hierarchy, int(accepted.counts.sum()))
    store_identity(run, settings, accepted.digests)
    finest = accepted.hierarchy.levels[-1].codes
    write_histogram(run.histogram(UNIVERSE), accepted.counts, finest)
    write_hierarchy(regions_file(run), accepted.hierarchy)
    if plan.exact_level is not None:
        depth = accepted.hierarchy.names.index(plan.exact_level)
        groups = accepted.hierarchy.sum_up(accepted.counts.sum(axis=1))[depth]
        regions = pa.array(accepted.hierarchy.levels[depth].codes, pa.string())
        numbers = pa.table({"region": regions, "groups": pa.array(groups)})
        write_parquet(exact_groups_file(run), numbers)
    write_values(plan_file(run), plan)


SIZES: Mapping[str, Kind] = {"region": "key", "size": "number", "count": "number"}
RECORDS: Mapping[str, Kind] = {
    "person": "key",
    "unit": "key",
    "region": "key",
    "quantity": "number",
}
"""Columns of the tables, by their kinds."""


class SizeRange(NamedTuple):
    """The sizes that are counted; with a top code the largest counts all above it too."""

    smallest: int
    largest: int
    is_top_coded: bool = False

    def coded(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sizes (n,) under the top code, and whether each is counted."""
        sizes = np.minimum(sizes, self.largest) if self.is_top_coded else sizes
        return sizes, (sizes >= self.smallest) & (sizes <= self.largest)


def count_sizes(
    file: InputFile, regions: np.ndarray, sizes: SizeRange, tally: ValueTally, raw: RawColumns
) -> sparse.csr_array:
    """Counts (n_regions, n_sizes) of a table with columns region, size, count.

    A second row of a region and a size is tallied, though counted: a table that was appended twice
    would count twice the groups. Rows that break another rule are tallied and skipped. `raw` gets
    the sizes as they are. Raises UnreadableInput for a file that cannot be read.
    """
    known, valid_size, valid_count, once = size_rules(*sizes)
    index = KeyIndex(pa.array(regions, pa.string()))
    counts = sparse.csr_array((len(regions), sizes.largest - sizes.smallest + 1), dtype=np.int64)
    file = file.with_columns(SIZES)
    pairs = []
    for batch in read_batches(file, Selection(tuple(SIZES))):
        region = index.positions_by_value(batch["region"])
        columns = coded(batch, ("size", "count"), file.columns)
        size, count = (column.whole_numbers() for column in columns.values())
        raw.add(columns, region, count)
        is_pair = (region >= 0) & (size >= 0)
        pairs.append(pd.DataFrame({"region": region[is_pair], "size": size[is_pair]}))
        size, is_size = sizes.coded(size)
        tally.count(known, (region < 0).sum())
        tally.look_at(valid_size, number_counts(size))
        tally.look_at(valid_count, number_counts(count))
        good = (region >= 0) & is_size & (count > 0)
        entries = (count[good], (region[good], size[good] - sizes.smallest))
        counts += sparse.csr_array(entries, shape=counts.shape)
    counts.sum_duplicates()
    tally.count(once, pd.concat(pairs).duplicated().sum())
    return counts


def count_records(
    file: InputFile,
    regions: np.ndarray,
    sizes: SizeRange,
    quantity: int,
    tally: ValueTally,
    raw: RawColumns,
) -> sparse.csr_array:
    """Counts (n_regions, n_sizes) of the units of a table with a row for every person.

    Columns person, unit, region and, if it is there, quantity, which adds up to a unit's size and
    is 1 where it is missing or empty, at most `quantity`. Breaches and errors are as for
    `count_sizes`; `raw` gets the quantities.
    """
    once, named, known, one_region, valid_quantity, valid_size = record_rules(quantity, *sizes)
    index = KeyIndex(pa.array(regions, pa.string()))
    file = file.with_columns(RECORDS)
    persons, units, places, amounts = [], [], [], []
    for batch in read_batches(file, Selection(("person", "unit", "region"), with_others=True)):
        persons.append(trimmed_texts(batch["person"]))
        units.append(trimmed_texts(batch["unit"]))
        places.append(index.positions_by_value(batch["region"]))
        if "quantity" in batch:
            blank = pc.is_null(trimmed_texts(batch["quantity"])).to_numpy(zero_copy_only=False)
            columns = coded(batch, ("quantity",), file.columns)
            amounts.append(np.where(blank, 1, columns["quantity"].whole_numbers()))
            raw.add(columns, places[-1])
        else:
            amounts.append(np.ones(len(places[-1]), dtype=np.int64))
    person, unit = pa.chunked_array(persons), pa.chunked_array(units)
    region, amount = np.concatenate(places), np.concatenate(amounts)
    tally.count(once, len(person) - pc.count_distinct(person, mode="only_valid").as_py())
    tally.count(named, unit.null_count)
    tally.count(known, (region < 0).sum())
    is_amount = (amount >= 0) & (amount <= quantity)
    tally.look_at(valid_quantity, number_counts(amount))

    codes, found = pd.factorize(unit.to_pandas(), use_na_sentinel=True)
    good = (codes >= 0) & (region >= 0) & is_amount
    codes, region, amount = codes[good], region[good], amount[good]
    first = np.full(len(found), -1, dtype=np.int64)
    first[codes[::-1]] = region[::-1]
    tally.count(one_region, (region != first[codes]).sum())
    size = np.bincount(codes, weights=amount, minlength=len(found)).astype(np.int64)
    size, is_size = sizes.coded(size)
    is_unit = first >= 0
    tally.look_at(valid_size, number_counts(size[is_unit]))
    own = is_unit & is_size
    n_sizes = sizes.largest - sizes.smallest + 1
    return block_histogram(
        first[own], size[own] - sizes.smallest, n_blocks=len(regions), n_cells=n_sizes
    )
