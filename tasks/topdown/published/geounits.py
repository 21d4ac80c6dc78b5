"""The spine of published measurements, derived from their geocodes and variances.

Every geounit has constraints, so that their geocodes are the geounits of each geolevel; a geounit's
parent has the longest geocode that begins its own. The variances determine
each geounit's share of the budget: the share of its own geolevel, with the shares of neighbouring
geolevels whose geounits were bypassed, 0 where nothing was measured. Shares are exact fractions of
the budget that the settings name, and along every path they must add to 1.

Files are streamed; memory use is some hundred bytes a geounit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ....geography.levels import Geolevel, Spine, encode_shares
from ...answers.noisy import DPQUERY_SUFFIX
from ...census.queries import Schema, marginal_query, normalize_query_name
from ...noise.distributions import Noise
from ...runs.errors import InputRefused
from ..measurement.measure import unbalanced_blocks
from ..settings import TopdownSettings
from ..workload.budget import Budget
from .layout import (
    BLOCK_DIGITS,
    STATE_DIGITS,
    STATE_TOTAL,
    MeasurementFolder,
    Rows,
    partition_of,
    read_rows,
)

SAME_VARIANCE = 1e-5
"""Relative distance within which a variance, written in 32 bits, matches a share."""


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """The geounits of a geolevel in the order of the spine.

    geocode : (n,) texts. parent : (n,) position in the geolevel above, [-1] at the root.
    file : (n,) index into `files`, the names of the geolevel's constraint files.
    """

    name: str
    geocode: np.ndarray
    parent: np.ndarray
    file: np.ndarray
    files: Sequence[str]

    def refuse(self, place: int, what: str) -> NoReturn:
        """Raise InputRefused about a geounit, naming its file."""
        file = self.files[self.file[place]]
        raise InputRefused(f"{file}: geounit {self.geocode[place]} {what}.")

    def refuse_where(self, is_wrong: np.ndarray, what: str) -> None:
        """Refuse the first geounit of a mask (n,), if there is any."""
        if is_wrong.any():
            self.refuse(int(np.argmax(is_wrong)), what)


def read_spine_of(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, block_geocode: np.ndarray
) -> Spine:
    """The spine of a universe's measurements.

    `block_geocode` are the blocks of the geography, 16 digits. Raises InputRefused, naming the file
    and the geocode, for geolevels that are missing, geocodes that do not nest, blocks that the
    geography lacks, queries that the budget does not have or that are missing, variances that
    that follow from no share of the budget, and shares that do not add to 1 along a path.
    """
    budget, schema = settings.budget_of(universe), settings.schema_of(universe)
    levels = read_geounits(folder, universe, list(budget.geolevel_shares))
    blocks = levels[-1]
    own = pc.utf8_slice_codeunits(pa.array(blocks.geocode), -BLOCK_DIGITS).to_numpy(False)
    blocks.refuse_where(
        pd.Index(block_geocode).get_indexer(own) < 0,
        "ends in a block that input.geography does not have; name the geography file that the "
        "measurements were made with",
    )
    order = np.argsort(own.astype("S"), kind="stable")
    twice = order[1:][own[order][1:] == own[order][:-1]]
    if twice.size:
        what = "ends in a block that another one ends in too; fetch the file again"
        blocks.refuse(int(twice[0]), what)
    n_blocks = [np.ones(len(own), dtype=np.int64)]
    for above, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
        sums = np.bincount(below.parent, n_blocks[0], len(above.geocode))
        n_blocks.insert(0, sums.astype(np.int64))
    geolevels = tuple(
        Geolevel(
            level.name,
            level.geocode,
            level.parent,
            *_shares_of_level(folder, level, budget, schema),
            _is_aian(folder, level),
            n,
        )
        for level, n in zip(levels, n_blocks, strict=True)
    )
    _refuse_unbalanced(folder, universe, levels, geolevels)
    rank = np.empty(len(own), dtype=np.int64)
    rank[order] = np.arange(len(own))
    return Spine(settings.geography.spine, geolevels, own, rank)


def _is_aian(folder: MeasurementFolder, level: LevelCodes) -> np.ndarray:
    """(n,) bool: the geounits in the AIAN branch, whose geocodes begin with 1."""
    if level.parent[0] < 0 or folder.is_conventional:
        return np.zeros(len(level.geocode), dtype=bool)
    return pc.starts_with(pa.array(level.geocode), "1").to_numpy(False)


def read_geounits(
    folder: MeasurementFolder, universe: str, geolevels: Sequence[str]
) -> tuple[LevelCodes, ...]:
    """The geounits of a universe, root first, each geolevel sorted by parent and geocode.

    Raises InputRefused for a geolevel that is missing or too many, a root of several geounits, a
    geounit without a parent or without a child, and one in another state's partition.
    """
    further = [name for name in folder.universes.get(universe, ()) if name not in geolevels]
    if further:
        raise InputRefused(
            f"{folder.root} has measurements of {universe} at {further[0]}, which is not among "
            f"budget.{universe}.geolevels; name the preset or the budget that they were made with."
        )
    levels: list[LevelCodes] = []
    for name in geolevels:
        level = _codes_of_level(folder, universe, name)
        if levels:
            level = _nest_geolevel(levels, level)
        elif len(level.geocode) > 1:
            level.refuse(
                1,
                "is one of several geounits at the root, which must be one; name the preset "
                "whose spine the measurements have",
            )
        levels.append(level)
    return tuple(levels)


def _codes_of_level(folder: MeasurementFolder, universe: str, geolevel: str) -> LevelCodes:
    """Sorted distinct geocodes of a geolevel, without parents yet, and the first file that has
    each."""
    found, file = [], []
    paths = folder.level(universe, geolevel).constraints
    for number, path in enumerate(paths):
        seen: list[pa.Array] = []
        wanted = ["geocode", "query_name"]
        for rows in read_rows(folder, path, wanted):
            table = rows.table
            own = pc.not_equal(table["query_name"].cast(pa.string()), STATE_TOTAL)
            seen.append(pc.unique(table["geocode"].cast(pa.string()).filter(own)))
        codes = pc.unique(pa.concat_arrays(seen)) if seen else pa.array([], pa.string())
        found.append(codes)
        file.append(np.full(len(codes), number, dtype=np.int32))
    codes = pa.concat_arrays(found).to_numpy(zero_copy_only=False)
    names = [folder.name(path) for path in paths]
    if not len(codes):
        raise InputRefused(f"{names[0]} has no geounits; fetch the file again.")
    _, first = np.unique(codes.astype("S"), return_index=True)
    parent = np.full(len(first), -1, dtype=np.int64)
    return LevelCodes(geolevel, codes[first], parent, np.concatenate(file)[first], names)


def _nest_geolevel(above: Sequence[LevelCodes], level: LevelCodes) -> LevelCodes:
    """The geolevel with its parents, sorted as a spine has it."""
    parents, parent = above[-1], level.parent.copy()
    if len(parents.geocode) == 1 and parents.name == "US":
        parent[:] = 0
    else:
        codes, index = pa.array(level.geocode), pd.Index(parents.geocode)
        widths = np.unique(pc.utf8_length(pa.array(parents.geocode)).to_numpy())
        for width in widths[::-1]:
            open_ = np.flatnonzero(parent < 0)
            start = pc.utf8_slice_codeunits(codes.take(pa.array(open_)), 0, int(width))
            parent[open_] = index.get_indexer(start.to_numpy(zero_copy_only=False))
    level.refuse_where(
        parent < 0,
        f"begins with the geocode of no geounit of {parents.name}; fetch the files of both "
        "geolevels again",
    )
    parents.refuse_where(
        np.bincount(parent, minlength=len(parents.geocode)) == 0,
        f"has no geounit of {level.name} below it; fetch the files of {level.name} again",
    )
    order = np.lexsort((np.arange(len(parent)), parent))
    found = replace(
        level, geocode=level.geocode[order], parent=parent[order], file=level.file[order]
    )
    _refuse_other_partitions((*above, found))
    return found


def _refuse_other_partitions(levels: Sequence[LevelCodes]) -> None:
    """Refuse geounits of the last geolevel in the partition of another state."""
    names = [level.name for level in levels]
    if "State" not in names:
        return
    place = np.arange(len(levels[-1].geocode))
    for level in reversed(levels[names.index("State") + 1 :]):
        place = level.parent[place]
    states = levels[names.index("State")]
    # The digit of the branch precedes FIPS: 150 is state 50 inside AIAN areas.
    numbers = np.array(
        [
            int(code) if len(code) in STATE_DIGITS and code.isdigit() else -1
            for code in states.geocode
        ]
    )
    partitions = [partition_of(Path(file)) for file in levels[-1].files]
    of_file = np.array([-1 if p is None else p for p in partitions])[levels[-1].file]
    levels[-1].refuse_where(
        (of_file >= 0) & (of_file != numbers[place]),
        "belongs to another state than its partition; move or fetch it again",
    )


class ShareReader:
    """Exact shares of a geolevel's geounits from the variances of their answers.

    A share is one of the sums of the shares of successive geolevels that include the geounit's own:
    bypassing moves shares up or down a path, and in no other way.
    """

    def __init__(self, budget: Budget, geolevel: str) -> None:
        self.queries = budget.query_shares[geolevel]
        self.budget = budget
        shares = list(budget.geolevel_shares.values())
        own = list(budget.geolevel_shares).index(geolevel)
        sums = {
            sum(shares[first : last + 1], Fraction(0))
            for first in range(own + 1)
            for last in range(own, len(shares))
        }
        self.shares = [Fraction(0), *sorted(sums - {Fraction(0)})]
        """The shares that geounits can have; the first stands for geounits without measurements."""

    def noise(self, query: str, share: Fraction) -> Noise:
        """The noise of a query on a geounit of this share."""
        return self.budget.noise(share, self.queries[query])

    def codes(self, query: str, variances: np.ndarray) -> np.ndarray:
        """(n,) place in `shares` of the share by which a query has a variance (n,); 0 for none.

        Some files have sigma^2 in place of the variance.
        """
        noises = [self.noise(query, share) for share in self.shares[1:]]
        meant = [[noise.variance for noise in noises]]
        if not self.budget.is_pure:
            meant.append([float(noise.parameter) for noise in noises])
        ratios = variances[:, None, None] / np.array(meant)
        distance = np.abs(ratios - 1.0).min(axis=1)
        nearest = distance.argmin(axis=1)
        is_near = distance[np.arange(len(variances)), nearest] <= SAME_VARIANCE
        return np.where(is_near, 1 + nearest, 0)


def _shares_of_level(
    folder: MeasurementFolder, level: LevelCodes, budget: Budget, schema: Schema
) -> tuple[tuple[Fraction, ...], np.ndarray]:
    """Distinct shares of a geolevel's geounits, ascending, and each geounit's code."""
    universe = budget.universe
    names = list(budget.query_shares[level.name])
    bit = {marginal_query(schema, name).name: number for number, name in enumerate(names)}
    reader = ShareReader(budget, level.name)
    code = np.zeros(len(level.geocode), dtype=np.int32)
    seen = np.zeros(len(level.geocode), dtype=np.uint64)
    paths = folder.level(universe, level.name).measurements
    for name, rows, place in rows_by_query(folder, paths, level, ["variance"]):
        query = query_of(name)
        rows.refuse_where(
            np.full(place.size, query not in bit),
            level.geocode[place],
            f"has the query {query}, which budget.{universe}.queries.{level.name} does not "
            "ask; name the preset or the budget that the measurements were made with",
        )
        flag = np.uint64(1 << bit[query])
        what = f"has the query {query} twice; fetch the file again"
        rows.refuse_repeated(place, (seen[place] & flag) > 0, level.geocode, what)
        own = _codes_of_shares(level, rows, query, place, reader)
        differs = (seen[place] > 0) & (code[place] != own)
        what = (
            f"has a variance of {query} that implies another share of the budget than its "
            "other queries; fetch the file again"
        )
        rows.refuse_where(differs, level.geocode[place], what)
        code[place] = own
        seen[place] |= flag
    whole = np.uint64((1 << len(bit)) - 1)
    lacking = (seen != 0) & (seen != whole)
    if lacking.any():
        odd = int(np.argmax(lacking))
        absent = next(name for name, n in bit.items() if not int(seen[odd]) >> n & 1)
        level.refuse(
            odd,
            f"was measured, but not with the query {absent}; fetch the files of {level.name} again",
        )
    return encode_shares(reader.shares, code)


def _codes_of_shares(
    level: LevelCodes, rows: Rows, query: str, geounit: np.ndarray, reader: ShareReader
) -> np.ndarray:
    """Codes (n,) of the shares with which rows were measured, among the reader's."""
    variances, place = np.unique(rows.table["variance"].to_numpy(), return_inverse=True)
    code = reader.codes(query, variances)[place.reshape(-1)]
    if not code.all():
        odd = int(np.argmin(code))
        nominal = reader.noise(query, reader.budget.geolevel_shares[level.name])
        raise InputRefused(
            f"{rows.file}: the variance {rows.table['variance'][odd].as_py():.6g} of {query} at "
            f"geounit {level.geocode[geounit[odd]]} does not follow from budget."
            f"{reader.budget.universe}, which gives {nominal.variance:.6g} where nothing was "
            "bypassed; name the preset or the budget that the measurements were made with."
        )
    return code


def rows_by_query(
    folder: MeasurementFolder,
    paths: Sequence[Path],
    level: Geolevel | LevelCodes,
    columns: Sequence[str],
    optional: Sequence[str] = (),
) -> Iterator[tuple[str, Rows, np.ndarray]]:
    """Names of queries or constraints, some rows of each, and the geounits (n,) of the rows; raises
    InputRefused for a geounit without constraints."""
    index = pd.Index(np.asarray(level.geocode, dtype=object))
    for path in paths:
        for rows in read_rows(folder, path, ["geocode", "query_name", *columns], optional):
            names, number = rows.texts("query_name")
            for position in np.unique(number).tolist():
                if names[position] == STATE_TOTAL:
                    continue
                own = rows.part(np.flatnonzero(number == position))
                codes, code = own.texts("geocode")
                used, at = np.unique(code, return_inverse=True)
                place = index.get_indexer(codes[used])[at]
                what = f"has no constraints at {level.name}; fetch the files of {level.name} again"
                own.refuse_where(place < 0, codes[code], what)
                yield names[position], own, place


def query_of(name: str) -> str:
    """Query of a row's name: `sex * age` of `sex * age_dpq`."""
    return normalize_query_name(name.removesuffix(DPQUERY_SUFFIX))


def _refuse_unbalanced(
    folder: MeasurementFolder,
    universe: str,
    levels: Sequence[LevelCodes],
    geolevels: tuple[Geolevel, ...],
) -> None:
    """Refuse shares that do not add to exactly 1 along the path to every block.

    A geolevel may be without measurements if all its geounits were bypassed.
    """
    wrong = unbalanced_blocks(geolevels)
    if not wrong.size:
        return
    empty = [level.name for level in levels if not folder.level(universe, level.name).measurements]
    lacking = f" (measurements are missing at {', '.join(empty)})" if empty else ""
    levels[-1].refuse(
        int(wrong[0]),
        f"is on a path whose measurements do not use up the budget{lacking}; fetch the files of "
        f"{universe} again, or name the preset, the budget or the estimator that they were made "
        "for",
    )
