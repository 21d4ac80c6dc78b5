"""Spines of a declared census: geolevels are columns of a table of areas, root first.

The root is the whole table. Every other geolevel is a column, whose codes are texts of any alphabet
and width and need only be unique within the geolevel above. The last geolevel is one row of the
table. A spine may leave geolevels out, may put chosen areas into a branch of their own below the
root, and may form the geounits of its last geolevel but one anew, as groups of areas that bring
off-spine entities closer (Algorithm 2 of [Spines2024]).

Spine geocodes are paths: the codes from below the root down, joined by points. In a code every
character but ASCII letters, digits, "-", "_" and "~" is percent-encoded (RFC 3986, a point as %2E),
so that a parent's geocode and a point begin its children's. Where there is a branch the path starts
with 1 inside and 0 outside it; a group is g and a running number; the codes of a geolevel that is
left out are part of the paths of the next one below. The root is "0".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from urllib.parse import quote

import numpy as np
import pandas as pd

from .categories import Category, coded_category, combine
from .hierarchy import cut_groups, first_rows, nest, ranks_within, text_column
from .levels import Spine, nested_spine
from .rules import GeographyRefused, GroupRules, declared_geolevels

ROOT = "0"
GEOCODE = "block_geocode"
"""Column of the frame of areas with the path of each area."""


@dataclass(frozen=True, kw_only=True)
class ColumnCategory:
    """Off-spine entities identified by a column; codes are unique within a geolevel, or
    everywhere.
    """

    name: str
    column: str
    within: str | None = None
    outside: tuple[str, ...] = ("",)


@dataclass(frozen=True, kw_only=True)
class DeclaredRules(GroupRules):
    """Rules that determine a spine together with the areas and the shares.

    `branch` (n_areas,) marks the areas that form a branch of their own; None for no branch.
    `not_crossed` is the geolevel whose borders the groups of an optimised spine may not
    cross, so that exact answers in its geounits are sums over siblings; None for no such geolevel.
    """

    geolevels: tuple[str, ...]
    categories: tuple[ColumnCategory, ...] = ()
    branch: np.ndarray | None = None
    never_split: tuple[str, ...] = ()
    not_crossed: str | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """Geounits of a declared geolevel: `number` (n_areas,) of each area's, and their paths."""

    number: np.ndarray
    path: np.ndarray


def encode_code(code: str) -> str:
    """A code encoded for a path.

    >>> encode_code("Nord/2.b")
    'Nord%2F2%2Eb'
    """
    return quote(code, safe="").replace(".", "%2E")


def area_paths(areas: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """(n_areas,) object array: the encoded codes of some columns, joined by points; of all
    geolevels below the root, the path of each row of a table of areas.

    Raises GeographyRefused for a column that is absent or has gaps.
    """
    codes = []
    for name in columns:
        code, distinct = pd.factorize(text_column(areas, name))
        codes.append(np.array([encode_code(value) for value in distinct], dtype=object)[code])
    return reduce(lambda path, text: path + "." + text, codes)


def declared_units(areas: pd.DataFrame, geolevels: Sequence[str]) -> dict[str, Units]:
    """The geounits of every declared geolevel that is a column of the areas, and of the root.

    `areas` is sorted by path.
    """
    number = np.zeros(len(areas), dtype=np.int64)
    path = np.array([""], dtype=object)
    found = {geolevels[0]: Units(number, np.array([ROOT], dtype=object))}
    for name in geolevels[1:]:
        if name not in areas.columns:
            continue
        above = number
        code, distinct = pd.factorize(text_column(areas, name), sort=True)
        number = nest(above, code.astype(np.int64))
        first = first_rows(number, int(number.max()) + 1)
        text = np.array([encode_code(value) for value in distinct], dtype=object)[code[first]]
        before = path[above[first]]
        path = np.where(before == "", text, before + "." + text)
        found[name] = Units(number, path)
    return found


def declared_spine(
    areas: pd.DataFrame,
    *,
    geolevel_shares: Mapping[str, Fraction],
    kind: str,
    rules: DeclaredRules,
    is_pure: bool,
) -> Spine:
    """Build the spine of one universe of a declared census.

    Args:
        areas: one row per area, sorted by the column `block_geocode` (see `area_paths`).
        geolevel_shares: exact shares by geolevel, root first; they add to 1.
        kind: "conventional", or "optimized", which forms the last geolevel but one of groups.
        rules: geolevels, categories, branch, cut-offs.
        is_pure: whether noise comes from discrete Laplace; see `geography.levels`.

    Raises:
        GeographyRefused: areas, shares or rules cannot be used.
    """
    names = declared_geolevels(geolevel_shares, kind, rules.geolevels)
    branch = np.zeros(len(areas), dtype=bool) if rules.branch is None else rules.branch
    grouped = names[-2] if kind == "optimized" else None
    pieces = _pieces(areas, names, rules, grouped)
    above = np.zeros(len(areas), dtype=np.int64)
    numbers = {names[0]: above}
    for depth, name in enumerate(names[1:], 1):
        if name == grouped:
            above = _groups(areas, above, rules)
        else:
            number = pd.factorize(pieces[name], sort=True)[0].astype(np.int64)
            above = nest(above, *([branch.astype(np.int64)] if depth == 1 else []), number)
        numbers[name] = above

    def geocodes(name: str, row: np.ndarray, parent: np.ndarray, above: np.ndarray) -> np.ndarray:
        if name == names[0]:
            return np.array([ROOT], dtype=object)
        piece = pieces[name][row] if name in pieces else _number_within_parents(parent)
        if name != names[1]:
            return above[parent] + "." + piece
        if rules.branch is None:
            return piece
        return np.where(branch[row], "1.", "0.").astype(object) + piece

    paths = text_column(areas, GEOCODE).to_numpy(dtype=object)
    return nested_spine(
        kind,
        numbers,
        geolevel_shares,
        branch,
        geocodes,
        lambda rows: paths[rows],
        rules,
        is_pure,
    )


def _groups(areas: pd.DataFrame, above: np.ndarray, rules: DeclaredRules) -> np.ndarray:
    """(n_areas,) groups of areas below the geounits `above`, formed by Algorithm 2 of [Spines2024];
    where they would cross the geounits of `rules.not_crossed`, within these alone.
    """
    combination = combine(declared_categories(areas, rules), len(areas))
    groups = nest(above, cut_groups(above, combination, rules.fanout_cutoff, rules.cut))
    if rules.not_crossed is None:
        return groups
    unit = declared_units(areas, rules.geolevels)[rules.not_crossed].number
    if len(np.unique(groups)) == len(np.unique(nest(groups, unit))):
        return groups
    within = nest(above, unit)
    return nest(within, cut_groups(within, combination, rules.fanout_cutoff, rules.cut))


def declared_categories(areas: pd.DataFrame, rules: DeclaredRules) -> tuple[Category, ...]:
    """The off-spine entity categories that the rules name; see `geography.categories`."""
    units = declared_units(areas, rules.geolevels)
    return tuple(_declared_category(areas, units, category) for category in rules.categories)


def _declared_category(
    areas: pd.DataFrame, units: Mapping[str, Units], category: ColumnCategory
) -> Category:
    if category.column not in areas.columns:
        text_column(areas, category.column)
    values = areas[category.column].fillna("").astype("str")
    prefix = Units(np.zeros(len(areas), dtype=np.int64), np.array([""], dtype=object))
    if category.within is not None:
        prefix = units[category.within]
    return coded_category(
        category.name,
        values,
        prefix.number,
        np.ones(len(areas), dtype=bool),
        category.outside,
        lambda number, code: f"{prefix.path[number]} {code}".strip(),
    )


def _pieces(
    areas: pd.DataFrame, names: Sequence[str], rules: DeclaredRules, grouped: str | None
) -> dict[str, np.ndarray]:
    """(n_areas,) the part of a path for each geolevel of a spine: its code, after the codes of the
    geolevels above it that the spine leaves out; nothing for groups.
    """
    columns = [name for name in rules.geolevels[1:] if name in areas.columns]
    pieces: dict[str, np.ndarray] = {}
    done = 0
    for name in names[1:]:
        if name == grouped:
            continue
        if name not in columns:
            raise GeographyRefused(
                f"the table of areas has no column '{name}' for the geolevel of this name; add it, "
                "or leave the geolevel out"
            )
        upto = columns.index(name) + 1
        pieces[name], done = area_paths(areas, columns[done:upto]), upto
    return pieces


def _number_within_parents(parent: np.ndarray) -> np.ndarray:
    """(n,) object array: g and a running number within each parent, padded with zeros."""
    rank = ranks_within(parent) + 1
    width = len(str(rank.max()))
    return np.array([f"g{i:0{width}d}" for i in rank.tolist()], dtype=object)
