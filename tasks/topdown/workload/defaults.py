"""What the settings of a run need not say: universes, geolevels' order and shares, passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...census.census import preset_census

OTHER = "other"
"""Stands in `queries` for the geolevels that it does not name."""


def with_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file's tree with everything that it leaves to the census.

    The universes are those with a budget, in the order of their declaration. Where a file declares
    its census, a section geography may be left out, and where that has geolevels, budgets have them
    in this order, with equal shares if they give none, and geolevels whose queries are not given
    ask those of `other`.
    """
    found = dict(tree)
    budgets = found.get("budget")
    if not isinstance(budgets, Mapping):
        return found
    census = found.get("census", "cef_2020")
    geolevels: list[str] = []
    if isinstance(census, Mapping):
        found.setdefault("geography", {})
        declared = [name for name in _table(census, "universes") if name in budgets]
        listed = _table(census, "geography").get("geolevels", [])
        geolevels = [name for name in listed if isinstance(name, str)]
    else:
        declared = _preset_universes(census, budgets)
    run = found.get("run", {})
    if isinstance(run, Mapping) and "universes" not in run:
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


def default_passes(asked: Sequence[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Passes of the estimators where the settings give none: the total first, if it is measured."""
    if "total" in asked and len(asked) > 1:
        return {
            "least_squares": (("total",), ("all but total",)),
            "rounder": (("total",), ("detailed",)),
        }
    return {"least_squares": (("all",),), "rounder": (("total", "detailed"),)}


def _table(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = tree.get(key)
    return found if isinstance(found, Mapping) else {}
