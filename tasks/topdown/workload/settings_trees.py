"""Settings files as trees before validation: defaults of the census, one spelling of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...census.census import preset_census
from ...census.queries import normalize_query_name
from ...runs.names import factors_of
from ...runs.settings import table_of

OTHER = "other"
"""Key in `queries` for the geolevels that it does not name."""


def with_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file's tree completed with the defaults of the census.

    The universes are those with a budget, in the order of their declaration. Where a file declares
    its census, the spine is the conventional one unless the section geography names another, and
    where that has geolevels, budgets have them in this order, with equal shares if they give none,
    and geolevels whose queries are not given use the queries of `other`.
    """
    found = dict(tree)
    budgets = found.get("budget")
    if not isinstance(budgets, Mapping):
        return found
    census = found.get("census", "cef_2020")
    geolevels: list[str] = []
    if isinstance(census, Mapping):
        geography = found.get("geography", {})
        if isinstance(geography, Mapping):
            found["geography"] = {"spine": "conventional", **geography}
        declared = [name for name in table_of(census, "universes") if name in budgets]
        listed = table_of(census, "geography").get("geolevels", [])
        if isinstance(listed, list | tuple):
            geolevels = [name for name in listed if isinstance(name, str)]
    else:
        declared = _preset_universes(census, budgets)
    run = found.get("run", {})
    if declared and isinstance(run, Mapping) and "universes" not in run:
        found["run"] = {**run, "universes": declared}
    if geolevels:
        found["budget"] = {
            name: _budget(budget, geolevels) if isinstance(budget, Mapping) else budget
            for name, budget in budgets.items()
        }
    return found


def _preset_universes(census: Any, budgets: Mapping[str, Any]) -> list[str]:
    """Universes of a preset's census that have a budget; all budgets if there is no such census."""
    try:
        return [name for name in preset_census(census).universes if name in budgets]
    except (ValueError, TypeError):
        return list(budgets)


def _budget(budget: Mapping[str, Any], geolevels: Sequence[str]) -> dict[str, Any]:
    shares, queries = budget.get("geolevels"), budget.get("queries")
    found = dict(budget)
    if shares is None:
        shares = {name: str(Fraction(1, len(geolevels))) for name in geolevels}
    if isinstance(shares, Mapping):
        unknown = [name for name in shares if name not in geolevels]
        found["geolevels"] = {n: shares[n] for n in (*unknown, *geolevels) if n in shares}
        if isinstance(queries, Mapping) and OTHER in queries:
            asked = {name: queries.get(name, queries[OTHER]) for name in found["geolevels"]}
            found["queries"] = asked
    return found


def with_one_spelling(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file's tree in which every measured query of a universe has one name: that by
    which its budget first names it, with a space around each `*`.

    Names that differ in spaces or in the order of their factors mean the same query.
    """
    found = dict(tree)
    for universe, budget in table_of(tree, "budget").items():
        names: dict[tuple[str, ...], str] = {}
        for shares in table_of(budget, "queries").values() if isinstance(budget, Mapping) else ():
            for name in shares if isinstance(shares, Mapping) else ():
                names.setdefault(factors_of(name), normalize_query_name(name))
        for section in _NAMING:
            own = table_of(found, section)
            if universe in own:
                found[section] = {**own, universe: _respelt(own[universe], names)}
    return found


_NAMING = ("budget", "workload", "design")
"""Sections with a table for each universe, in which measured queries are named."""
_ALL_BUT = "all but "


def _respelt(part: Any, names: Mapping[tuple[str, ...], str]) -> Any:
    """Part of a tree with the given names of queries; if two keys become one, both stay."""
    if isinstance(part, list | tuple):
        return [_respelt(item, names) for item in part]
    if isinstance(part, Mapping):
        keys = [_respelt(key, names) for key in part]
        keys = keys if len(set(keys)) == len(keys) else list(part)
        return dict(zip(keys, (_respelt(item, names) for item in part.values()), strict=True))
    if not isinstance(part, str) or "*" not in part:
        return part
    if part.startswith(_ALL_BUT):
        left = part.removeprefix(_ALL_BUT).split(",")
        return _ALL_BUT + ", ".join(_respelt(name.strip(), names) for name in left)
    return names.get(factors_of(part), part)
