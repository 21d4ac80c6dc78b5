"""Consequences of a budget, before it is spent: noise and margins of every query, and guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import pandas as pd
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.products import privacy_curves
from spineflow.tasks.products.budget import Cost, margin_of
from spineflow.tasks.products.registry import find_product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import Source


def budget(product: str, settings: Source) -> pd.DataFrame:
    """The cost of every query in a run with these settings, and the width of its noise.

    Columns: `universe`, `geolevel`, `query`, `share` of the universe's budget, `std_dev` of the
    noise in each answer, and `margin`: the noise is within it with a probability of at least 95 %,
    by the exact distribution. Nothing is drawn and nothing spent.

    Args:
        product: Name of a flow, such as `topdown` or `group-sizes`.
        settings: A settings file, or its tables as nested mappings; losses are exact fractions in
            quotes. Only public input is read, such as the areas of trips.

    Raises:
        SpineflowError: Settings are refused.

    Example: `spineflow.budget("topdown", "settings.toml")`.
    """
    return queries_of(_costs(product, settings))


def guarantee(product: str, settings: Source) -> pd.DataFrame:
    """The guarantee of a run with these settings, one row a universe.

    Columns: `universe`, `mechanism`, `neighbors`, `rho` of bounded zCDP for one person, and
    `epsilon` at `delta`, by the tight conversion, and `exact_epsilon` by the noise itself, missing
    where it is not known. Universes add up, as the ledger adds them.
    Arguments and errors as for `budget`.
    """
    return guarantees_of(_costs(product, settings))


def privacy_curve(product: str, settings: Source) -> pd.DataFrame:
    """The exact privacy curve of a run with these settings: delta at several epsilons.

    Columns: `universe`, `epsilon`, and the smallest delta with which (epsilon, delta)-differential
    privacy holds for one record, between the product's own neighbours: at most `upper`, a rigorous
    bound, and at least `lower`; `conversion` is the delta that follows from the rho of all counts
    alone. No geounit is bypassed. For detailed groups `universe` is the pass. A universe whose
    exact curve is not known has no rows.

    Args:
        product: Name of a flow that has one release, such as `topdown` or `group-sizes`.
        settings: As for `budget`.

    Raises:
        SpineflowError: Settings are refused, or no universe has an exact curve.

    Example: `spineflow.privacy_curve("topdown", "settings.toml")`.
    """
    curves = _curves(product, settings)
    found = {name: privacy_curves.curve_points(curve) for name, curve in curves.items()}
    frames = [
        pd.DataFrame(
            {
                "universe": universe,
                "epsilon": points.epsilons,
                "upper": points.upper,
                "lower": points.lower,
                "conversion": points.conversion,
            }
        )
        for universe, points in found.items()
        if points is not None
    ]
    return pd.concat(frames, ignore_index=True).sort_values(
        ["universe", "epsilon"], ignore_index=True
    )


def trade_off(product: str, settings: Source) -> pd.DataFrame:
    """The errors of the best test of one record, from everything that a run releases.

    An adversary who knows all other records tests a suspicion about this one. Columns: `universe`,
    `false_positives`, and a lower bound of the share of `false_negatives` for all tests at that
    share of false alarms. It follows from upper bounds of the exact curve, without bypassed
    geounits. Where a change of one record changes several records, or records of several universes,
    it covers all of them together, and `universe` names the table and the universes.
    Arguments and errors as for `privacy_curve`.
    """
    asked = find_product(product)
    found = asked.curves(asked.load(settings))
    curves = _require_curves(asked.name, {} if found is None else found.tested)
    frames = [
        pd.DataFrame(
            {
                "universe": universe,
                "false_positives": privacy_curves.FALSE_POSITIVES,
                "false_negatives": privacy_curves.trade_off(curve).false_negatives,
            }
        )
        for universe, curve in curves.items()
    ]
    return pd.concat(frames, ignore_index=True)


def _curves(product: str, settings: Source) -> dict[str, PrivacyCurve]:
    """The known exact curves, by universe; raises InputRefused without any."""
    asked = find_product(product)
    curves = asked.curves(asked.load(settings))
    return _require_curves(asked.name, {} if curves is None else curves.known)


def _require_curves(name: str, curves: dict[str, PrivacyCurve]) -> dict[str, PrivacyCurve]:
    if not curves:
        raise InputRefused(
            f"No universe of these settings of {name} has an exact curve: it is not defined "
            "without noise, or if the worst change of one person is not known."
        )
    return curves


def queries_of(costs: Mapping[str, Cost]) -> pd.DataFrame:
    """The frame of `budget`, from the costs of a run."""
    rows = [
        {
            "universe": universe,
            "geolevel": measure.place,
            "query": measure.query,
            "share": float(measure.share),
            "std_dev": measure.deviation,
            "margin": margin_of(measure),
        }
        for universe, cost in costs.items()
        for measure in cost.plan.measured
    ]
    return pd.DataFrame(
        rows, columns=["universe", "geolevel", "query", "share", "std_dev", "margin"]
    )


def guarantees_of(costs: Mapping[str, Cost]) -> pd.DataFrame:
    """The frame of `guarantee`, from the costs of a run."""
    rows = [
        {
            "universe": universe,
            "mechanism": cost.plan.mechanism,
            "neighbors": cost.neighbors,
            "rho": float(Fraction(cost.plan.bounded_rho)) if cost.plan.guarantee else math.inf,
            "epsilon": float(cost.epsilons["tight"]),
            "exact_epsilon": _number(cost.exact),
            "delta": float(cost.delta or 0),
        }
        for universe, cost in costs.items()
    ]
    return pd.DataFrame(rows)


def _number(epsilon: float | str | None) -> float:
    return float("nan") if epsilon is None else float(epsilon)


def _costs(product: str, settings: Source) -> Mapping[str, Cost]:
    found = find_product(product)
    costs: Mapping[str, Cost] = found.costs(found.load(settings))
    return costs
