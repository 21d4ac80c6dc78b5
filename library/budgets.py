"""Consequences of a budget, before it is spent: noise and margins of every query, and guarantee;
and the privacy-loss ledger: creation with its caps, and spending as a data frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pandas as pd
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products import privacy_curves
from spineflow.tasks.products.budget import Cost, margin_of
from spineflow.tasks.products.product import find_product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import exact_fraction
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
    curves = _curves(product, settings, "known")
    found = {name: privacy_curves.curve_points(curve) for name, curve in curves.items()}
    frames = {
        universe: pd.DataFrame(vars(points)).rename(columns={"epsilons": "epsilon"})
        for universe, points in found.items()
        if points is not None
    }
    whole = pd.concat(frames, names=["universe"]).reset_index("universe")
    return whole.sort_values(["universe", "epsilon"], ignore_index=True)


def trade_off(product: str, settings: Source) -> pd.DataFrame:
    """The errors of the best test of one record, from everything that a run releases.

    An adversary who knows all other records tests a suspicion about this one. Columns: `universe`,
    `false_positives`, and a lower bound of the share of `false_negatives` for all tests at that
    share of false alarms. It follows from upper bounds of the exact curve, without bypassed
    geounits. Where a change of one record changes several records, or records of several universes,
    it covers all of them together, and `universe` names the table and the universes.
    Arguments and errors as for `privacy_curve`.
    """
    curves = _curves(product, settings, "tested")
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


def _curves(product: str, settings: Source, kind: str) -> Mapping[str, PrivacyCurve]:
    """The `known` or the `tested` exact curves; raises InputRefused without any."""
    asked = find_product(product)
    curves = getattr(asked.curves(asked.load(settings)), kind, None)
    if not curves:
        raise InputRefused(
            f"No universe of these settings of {asked.name} has an exact curve: it is not defined "
            "without noise, or if the worst change of one person is not known."
        )
    return curves


def queries_of(costs: Mapping[str, Cost]) -> pd.DataFrame:
    """The frame of `budget`, from the costs of a run."""
    rows = [
        (universe, own.place, own.query, float(own.share), own.deviation, margin_of(own))
        for universe, cost in costs.items()
        for own in cost.plan.measured
    ]
    columns = ["universe", "geolevel", "query", "share", "std_dev", "margin"]
    return pd.DataFrame(rows, columns=columns)


def guarantees_of(costs: Mapping[str, Cost]) -> pd.DataFrame:
    """The frame of `guarantee`, from the costs of a run."""
    rows = [
        {
            "universe": universe,
            "mechanism": cost.plan.mechanism,
            "neighbors": cost.neighbors,
            "rho": float(Fraction(cost.plan.bounded_rho)) if cost.plan.guarantee else math.inf,
            "epsilon": float(cost.epsilons["tight"]),
            "exact_epsilon": cost.exact,
            "delta": float(cost.delta or 0),
        }
        for universe, cost in costs.items()
    ]
    return pd.DataFrame(rows).astype({"exact_epsilon": float})


def _number(text: str | None) -> float | None:
    return None if text is None else float(Fraction(text))


def _costs(product: str, settings: Source) -> Mapping[str, Cost]:
    found = find_product(product)
    costs: Mapping[str, Cost] = found.costs(found.load(settings))
    return costs


def make_ledger(path: str | Path, cap: str | int | Fraction) -> Path:
    """Make a ledger whose datasets may each spend `cap`, a rho of bounded zCDP per person.

    An office does this once, before anything runs. Returns the ledger's path. A ledger that
    exists is kept, if it has this cap, so that a notebook can run again.

    Raises SpineflowError for a cap that is no exact fraction, and for a ledger with another cap.

    Example: `spineflow.make_ledger("ledger.db", "3")`.
    """
    from spineflow.flows.ledger import WrittenCaps, init_ledger

    file = Path(path)
    try:
        wanted = exact_fraction(cap)
    except ValueError:
        raise InputRefused(
            f"A cap of {cap} is no exact fraction; write it in quotes, as '3/2'."
        ) from None
    if file.exists():
        now = summary(open_ledger(file, must_exist=True))["cap"]
        if now is None or Fraction(now) != wanted:
            raise InputRefused(
                f"The ledger {file} is there already, with the cap {now or 'none'}; change it with "
                f"'spineflow ledger set-cap --ledger {file} --cap {cap}'."
            )
        return file
    init_ledger(file, WrittenCaps(cap=[str(wanted)]))
    return file


def ledger(path: str | Path) -> pd.DataFrame:
    """Spending of every dataset of a ledger, one row a dataset.

    Columns: `dataset`, `rho` spent, of bounded zCDP per person, `cap`, `remaining` (null without a
    cap), and `epsilon` at `delta`, by the tight conversion, and `exact_epsilon` by the exact curve
    of all draws, missing where it is not known or not smaller; it holds for runs that were planned
    before the first result. Raises SpineflowError for a missing ledger.
    """
    file = Path(path)
    if not file.exists():
        raise InputRefused(f"{file}: there is no such ledger; make it with make_ledger.")
    spent = summary(open_ledger(file, must_exist=True), is_exact=True)["datasets"]
    rows = [
        {
            "dataset": name,
            "rho": float(Fraction(own["rho"])),
            "cap": _number(own["cap"]),
            "remaining": _number(own["remaining"]),
            "epsilon": float(own["epsilon"]["tight"]),
            "exact_epsilon": own["epsilon"]["exact"],
            "delta": float(Fraction(own["epsilon"]["delta"])),
        }
        for name, own in spent.items()
    ]
    columns = ["dataset", "rho", "cap", "remaining", "epsilon", "exact_epsilon", "delta"]
    return pd.DataFrame(rows, columns=columns).astype({"exact_epsilon": float})
