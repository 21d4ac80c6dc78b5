"""What a budget costs: its guarantee, what protects one attribute or the block, and every noise."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

from ...census.schema import Schema
from ...census.sensitivity import Norms
from ...ledger.accounting import (
    BOUNDED,
    ONE_OF_SEVERAL,
    PURE_DP,
    SEVERAL_RECORDS,
    TWO_RECORDS,
    ZCDP,
    Guarantee,
    check_delta,
    check_fraction,
)
from ...ledger.plan import REPORT_DELTA, Measure, UniversePlan
from ...noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...runs.errors import InputRefused
from ..settings import TopdownSettings
from .budget import Budget
from .exact_loss import change_of_attribute, change_of_block, exact_epsilon, exact_parts, share_of
from .margins import margin_of_error


def costs(settings: TopdownSettings) -> dict[str, Any]:
    """What a run would cost, per universe: `budget_report`, each query's margin of error, and the
    exact epsilons where no geounit is bypassed, of one record, of each attribute and of the block
    within a geounit; None where only that by rho is known.
    """

    def cost(universe: str) -> dict[str, Any]:
        budget = settings.budget_of(universe)
        report = report_of(settings, universe)
        for query in report["queries"]:
            shares = (Fraction(query["geolevel_share"]), Fraction(query["query_share"]))
            query["margin_of_error"] = margin_of_error(budget, *shares)
        return _with_exact(report, budget, settings.schema_of(universe))

    # The transforms that exact epsilons take hold no lock: universes are told side by side.
    with ThreadPoolExecutor() as pool:
        return dict(
            zip(settings.run.universes, pool.map(cost, settings.run.universes), strict=True)
        )


def _with_exact(report: dict[str, Any], budget: Budget, schema: Schema) -> dict[str, Any]:
    """A report with the exact epsilons beside those by rho, and the long list of queries last."""
    delta = reported_delta(budget)
    whole: float | str | None
    if budget.infinite:
        whole, attributes, blocks = "inf", report["attributes"], report["block_within"]
    else:
        whole = exact_epsilon(budget, delta)
        parts = exact_parts(budget, schema, delta)
        attributes, blocks = parts.attributes, parts.block_within
    rest = {name: value for name, value in report.items() if name != "queries"}
    return rest | {
        "epsilon": {"exact": whole, **report["epsilon"]},
        "attributes_exact": dict(attributes),
        "block_within_exact": dict(blocks),
        "queries": report["queries"],
    }


def guarantee_of(budget: Budget) -> Guarantee:
    """The guarantee of measuring one universe with this budget: native for one record changed.

    What a person's change costs follows from what it changes (`census.sensitivity`).
    """
    definition = PURE_DP if budget.is_pure else ZCDP
    charged, stated = (_factor(budget, norms) for norms in (budget.charge, budget.stated))
    more = stated if stated > charged else None
    if budget.charge != Norms():
        neighbors = TWO_RECORDS if budget.charge == Norms.of_records(2) else SEVERAL_RECORDS
        return Guarantee(
            definition, budget.total, neighbors, bounded_factor=charged, stated_factor=more
        )
    if more is None:
        return Guarantee(definition, budget.total, BOUNDED)
    return Guarantee(definition, budget.total, ONE_OF_SEVERAL, bounded_factor=more)


def _factor(budget: Budget, norms: Norms) -> Fraction:
    """Rho of bounded zCDP of a change over that of one changed record."""
    return norms.epsilon_factor**2 if budget.is_pure else norms.rho_factor


def reported_delta(budget: Budget) -> Fraction:
    """The delta at which the epsilon of a universe is told."""
    return REPORT_DELTA if budget.delta is None else budget.delta


def universe_plan(budget: Budget, measures: tuple[Measure, ...] = ()) -> UniversePlan:
    """What a universe is measured with: its loss, and measures as a spine has them."""
    return UniversePlan(
        budget.universe,
        budget.mechanism,
        None if budget.infinite else guarantee_of(budget),
        None if budget.infinite else budget.total,
        measures,
        reported_delta(budget),
    )


def attribute_share(budget: Budget, schema: Schema, attribute: str) -> Fraction:
    """Share of the total spent on queries that use `attribute`, over all geolevels.

    Two datasets that differ in one record's `attribute` alone agree on every query that sums over
    it, so its protection is that of the other queries: the total times this share.
    """
    return share_of(budget, budget.geolevel_shares, change_of_attribute(schema, attribute))


def block_within_share(budget: Budget, geolevel: str) -> Fraction:
    """Share of the total that protects the block of a record within its geounit at `geolevel`.

    Two datasets that differ in one record's block, both blocks in the same geounit at `geolevel`,
    agree on every query of that geolevel and of those above; the geolevels below it tell them
    apart. The geounits are those of the spine. Bypassing a geounit moves a share between
    geolevels but not across the boundary of a geounit that remains.
    """
    return share_of(budget, budget.geolevel_shares, change_of_block(budget, geolevel))


def report_of(settings: TopdownSettings, universe: str) -> dict[str, Any]:
    """The `budget_report` of a universe."""
    return budget_report(settings.budget_of(universe), settings.schema_of(universe))


def budget_report(budget: Budget, schema: Schema) -> dict:
    """What `spineflow budget --json` prints for one universe; fractions as strings.

    `rho` is the bounded zCDP figure per person (epsilon^2 / 2 under pure DP, whose own total is
    `epsilon`), `epsilon` that of one record.
    `attributes` and `block_within` hold the epsilon, by the tight conversion at `delta`, that
    protects one attribute, or the block within its geounit at that geolevel. Each query's `share`
    is that of the whole budget, the product of `geolevel_share` and `query_share`; the discrete
    Gaussian has a `sigma_squared`, the discrete Laplace a `scale`.
    """
    geolevels, plan = list(budget.geolevel_shares), universe_plan(budget)
    return {
        "universe": budget.universe,
        "mechanism": budget.mechanism,
        "neighbors": guarantee_of(budget).neighbors,
        "rho": plan.bounded_rho,
        "delta": None if budget.delta is None else str(budget.delta),
        "epsilon": plan.epsilons(),
        "attributes": {
            name: plan.epsilons(attribute_share(budget, schema, name))["tight"]
            for name in schema.attributes
        },
        "block_within": {
            name: plan.epsilons(block_within_share(budget, name))["tight"]
            for name in geolevels[:-1]
        },
        "queries": [
            {
                "geolevel": geolevel,
                "query": query,
                "share": str(budget.geolevel_shares[geolevel] * share),
                "geolevel_share": str(budget.geolevel_shares[geolevel]),
                "query_share": str(share),
                **_noise_of_share(budget, budget.geolevel_shares[geolevel], share),
            }
            for geolevel in geolevels
            for query, share in budget.query_shares[geolevel].items()
            if share > 0
        ],
    }


def _noise_of_share(budget: Budget, geolevel_share: Fraction, query_share: Fraction) -> dict:
    if budget.infinite:
        parameter = Fraction(0)
    else:
        parameter = budget.noise_parameter(geolevel_share, query_share)
    if budget.is_pure:
        return {"sigma_squared": None, "scale": str(parameter)}
    return {"sigma_squared": str(parameter)}


def check_budget(budget: Budget) -> None:
    """Refuse a budget that could not be spent as it stands.

    Raises InputRefused, with the sum found, if shares do not add to exactly 1 over the geolevels
    or over a geolevel's queries; for a negative share; a total that is not a positive fraction; a
    delta outside (0, 1) under zCDP; a float where a fraction is due; an unknown mechanism; or
    geolevels that have shares but no queries, or the reverse.
    """
    where = f"[budget.{budget.universe}]"
    if budget.mechanism not in (DISCRETE_GAUSSIAN, DISCRETE_LAPLACE):
        raise InputRefused(
            f"{where} mechanism {budget.mechanism!r} is unknown; "
            f"use {DISCRETE_GAUSSIAN!r} or {DISCRETE_LAPLACE!r}"
        )
    if not budget.infinite:
        parameter = "epsilon" if budget.is_pure else "rho"
        check_fraction(budget.total, f"{where} {parameter}")
        if budget.total <= 0:
            raise InputRefused(f"{where} {parameter} is {budget.total}; give a positive fraction")
        if not budget.is_pure:
            check_delta(budget.delta, where)
    _check_shares(budget.geolevel_shares, f"{where} the shares of the geolevels")
    differing = set(budget.geolevel_shares) ^ set(budget.query_shares)
    if differing:
        raise InputRefused(
            f"{where} geolevel {min(differing)!r} needs both a share and query shares"
        )
    for geolevel, shares in budget.query_shares.items():
        if not shares and not budget.geolevel_shares[geolevel]:
            continue
        _check_shares(shares, f"{where} the query shares of geolevel {geolevel}")


def _check_shares(shares: Mapping[str, Fraction], what: str) -> None:
    for name, share in shares.items():
        check_fraction(share, f"{what}: that of {name!r}")
        if share < 0:
            raise InputRefused(f"{what}: that of {name!r} is {share}; shares are not negative")
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        raise InputRefused(f"{what} add to {total}; change them so that they add to exactly 1")
