"""What a budget buys, before it is spent: noise and margins of every query, and the guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pandas as pd
from spineflow.tasks.noise.draws import Noise
from spineflow.tasks.noise.margins import distribution_of
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, noise_deviation
from spineflow.tasks.noise.quantiles import margin
from spineflow.tasks.products.registry import known
from spineflow.tasks.runs.settings_files import Source

COVERAGE = Fraction(95, 100)


def budget(product: str, settings: Source) -> pd.DataFrame:
    """What every query of a run with these settings costs, and how wide its noise is.

    Columns: `universe`, `geolevel`, `query`, `share` of the universe's budget, `std_dev` of the
    noise in each answer, and `margin`: the noise lies within it with a probability of 95 % at
    least, by the exact distribution. Nothing is drawn and nothing spent.

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
    """What a run with these settings promises, one row a universe.

    Columns: `universe`, `mechanism`, `neighbors`, `rho` of bounded zCDP for one person, and
    `epsilon` at `delta`, by the tight conversion, and `exact_epsilon` by the noise itself, missing
    where it is not known. Universes add up, as the ledger adds them.
    Arguments and errors as for `budget`.
    """
    return guarantees_of(_costs(product, settings))


def queries_of(costs: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of `budget`, from what a run costs."""
    rows = [
        {
            "universe": universe,
            "geolevel": query["geolevel"],
            "query": query["query"],
            "share": float(Fraction(query["share"])),
            "std_dev": noise_deviation(query),
            "margin": _margin(query),
        }
        for universe, report in costs.items()
        for query in report["queries"]
    ]
    return pd.DataFrame(
        rows, columns=["universe", "geolevel", "query", "share", "std_dev", "margin"]
    )


def guarantees_of(costs: Mapping[str, Any]) -> pd.DataFrame:
    """The frame of `guarantee`, from what a run costs."""
    rows = [
        {
            "universe": universe,
            "mechanism": report["mechanism"],
            "neighbors": report["neighbors"],
            "rho": float(Fraction(report["rho"])) if report["rho"] != "inf" else float("inf"),
            "epsilon": float(report["epsilon"]["tight"]),
            "exact_epsilon": _number(report["epsilon"].get("exact")),
            "delta": 0.0 if report["delta"] is None else float(Fraction(report["delta"])),
        }
        for universe, report in costs.items()
    ]
    return pd.DataFrame(rows)


def _number(epsilon: float | str | None) -> float:
    return float("nan") if epsilon is None else float(epsilon)


def _costs(product: str, settings: Source) -> Mapping[str, Any]:
    found = known(product)
    return found.costs(found.load(settings))


def _margin(query: Mapping[str, Any]) -> int:
    """The smallest m such that the noise of a query lies within -m and m with 95 % at least."""
    sigma_squared = query["sigma_squared"]
    name = DISCRETE_LAPLACE if sigma_squared is None else DISCRETE_GAUSSIAN
    parameter = Fraction(query["scale"] if sigma_squared is None else sigma_squared)
    return margin(distribution_of(Noise(name, parameter)), COVERAGE) if parameter else 0
