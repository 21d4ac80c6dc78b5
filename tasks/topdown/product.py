"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from fractions import Fraction

from ...validation.topdown.privacy import check_privacy
from ..census.queries import spelt_like
from ..ledger.plan import REPORT_DELTA
from ..pages.document import NONE, Block, Section, Table
from ..pages.numbers import decimal, shown_bound, shown_delta, shown_epsilon, shown_rho
from ..products.budget import Cost, shown_margin
from ..products.comparison import read_errors
from ..products.product import Accuracy, Product, noted
from ..runs.errors import InputRefused, refused
from .checks.accuracy.report import errors_of_totals, write_comparison
from .checks.pieces import outcomes_of_pieces
from .estimation.largest_solve import largest_solve, refuse_settings, size_in_words
from .fits import (
    fits,
    fits_measurements,
    plan_of_estimate,
    plan_within_memory,
    redundant_spending_of_run,
    refuse_estimate,
)
from .ingest.ingest import check_with_notes
from .measurement.charge import measurement_files
from .published.layout import EstimateSettings
from .release.certificate import facts_of, facts_of_run
from .settings import TopdownSettings
from .shown import document, rewritten, shown, summary, summary_of_estimate
from .workload.costs import costs, guarantee_of, total_for_margin
from .workload.privacy_curve import curves_of_run, scope_of_figures
from .workload.protected_tables import protected_tables


def _exactly(cost: Cost) -> str:
    """The exact epsilon, and at which delta where the other figures have none."""
    if cost.exact is None:
        return ""
    delta = "" if cost.delta else f" at delta {shown_delta(REPORT_DELTA)}"
    return f"{shown_bound(cost.exact)} exactly{delta}, "


def costs_with_sizes(settings: TopdownSettings) -> dict[str, Cost]:
    """The costs by universe, with the largest solve as far as it is known without input."""
    found = {}
    for universe, cost in costs(settings).items():
        largest = asdict(largest_solve(settings, universe))
        found[universe] = replace(cost, further={**cost.further, "largest_solve": largest})
    return found


def _own_rho(settings: TopdownSettings, universe: str, charged: str) -> str:
    """Rho of one changed record: what the ledger is `charged`, or less where a person's change may
    change several."""
    budget = settings.budget_of(universe)
    own = None if budget.infinite else guarantee_of(budget).own_rho
    return charged if own is None or own == Fraction(charged) else str(own)


def _charged(settings: TopdownSettings, universe: str, charged: str) -> str:
    """What the ledger is charged that is more than one record's rho, and for which change."""
    why = protected_tables(settings, universe)
    return f"The ledger is charged rho {shown_rho(charged)}, that of the largest change. {why}"


def charged_for(settings: TopdownSettings) -> Iterator[str]:
    """Of each universe that is charged more than the rho of one record: for which change."""
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        if not budget.infinite:
            charged = str(guarantee_of(budget).bounded_rho)
            if _own_rho(settings, universe, charged) != charged:
                yield f"{universe}: {_charged(settings, universe, charged)}"


def costs_in_words(settings: TopdownSettings) -> Iterator[Block | Section]:
    """The costs as tables, with what an attacker learns about an attribute, and the first solve.

    Rho stands beside the epsilon that follows from it: both are of one changed record.
    """
    for universe, cost in costs(settings).items():
        charged = cost.plan.bounded_rho
        rho = _own_rho(settings, universe, charged)
        is_more_charged = rho != charged
        first = (
            f"{cost.plan.mechanism.replace('_', ' ')}, "
            f"rho {rho} ({decimal(rho)}){' of one record' if is_more_charged else ''}, "
            f"epsilon {_exactly(cost)}"
            f"{shown_epsilon(cost.epsilons['tight'])} at delta {shown_delta(cost.delta)} "
            f"by rho (simple bound {shown_epsilon(cost.epsilons['simple'])})"
        )
        queries = tuple(
            (own.level, own.query, *shares.values(), f"{own.deviation:.3g}", shown_margin(own))
            for own, shares in zip(cost.plan.measures, cost.of_queries, strict=True)
        )
        headers = ("geolevel", "query", "geolevel share", "query share", "noise s.d.")
        last = settings.last_geolevel
        by_attribute, by_block = cost.attributes.items(), cost.block_within.items()
        exact = cost.further
        protected = [
            *((f"{n} of a record", e, exact["attributes_exact"][n]) for n, e in by_attribute),
            *((f"{last} within its {n}", e, exact["block_within_exact"][n]) for n, e in by_block),
        ]
        lacks = tuple(
            (what, NONE if exact is None else shown_bound(exact), shown_epsilon(epsilon))
            for what, epsilon, exact in protected
        )
        yield Section(
            universe,
            (
                first,
                *([_charged(settings, universe, charged)] if is_more_charged else []),
                Table((*headers, "margin, 95 %"), queries),
                *scope_of_figures(settings),
                Table(("what an attacker lacks", "epsilon, exactly", "epsilon by rho"), lacks),
                *size_in_words(universe, largest_solve(settings, universe)),
            ),
        )
    if not settings.geography.bypass:  # To build a spine takes more than the rest.
        from .fits import redundant_spending_of_geography

        yield from noted(redundant_spending_of_geography(settings))


def needed(settings: TopdownSettings, target: str, margin: int) -> str:
    """The budget that a target UNIVERSE:GEOLEVEL:QUERY needs for a margin of error."""
    parts = target.split(":")
    if len(parts) != 3 or parts[0] not in settings.run.universes:
        raise InputRefused(
            f"--target {target}: write universe, geolevel and query, for example "
            "'persons:County:total=25'."
        )
    universe, geolevel, query = parts
    budget = settings.budget_of(universe)
    with refused(f"--target {target}: "):
        query = spelt_like(query, budget.query_shares.get(geolevel, ()))
        total = total_for_margin(budget, geolevel, query, margin)
    symbol = "epsilon" if budget.is_pure else "rho"
    rho = "none" if budget.infinite else f"{float(budget.total):.4g}"
    return (
        f"{query} at {geolevel} is within {margin} of the truth, but for post-processing, with a "
        f"probability of 95 % at {symbol} {float(total):.6g} and these shares (now {rho})"
    )


TOPDOWN: Product = Product(
    settings=TopdownSettings,
    costs=costs_with_sizes,
    costs_in_words=costs_in_words,
    charged_for=charged_for,
    refuse=refuse_settings,
    check_input=check_with_notes,
    fits=fits,
    needed=needed,
    curves=curves_of_run,
    plan=plan_within_memory,
    measured=measurement_files,
    notes=redundant_spending_of_run,
    checks=outcomes_of_pieces,
    check_plan=check_privacy,
    facts=facts_of_run,
    accuracy=Accuracy(read_errors, in_brief=errors_of_totals),
    document=document,
    summary=summary,
    shown=shown,
    compare=write_comparison,
    rewritten=rewritten,
)


ESTIMATE: Product = Product(
    settings=EstimateSettings,
    costs=costs,
    costs_in_words=costs_in_words,
    refuse=refuse_estimate,
    fits=fits_measurements,
    needed=needed,
    plan=plan_of_estimate,
    checks=outcomes_of_pieces,
    facts=lambda run, settings: facts_of(settings),
    accuracy=Accuracy(read_errors),
    document=document,
    summary=summary_of_estimate,
    shown=shown,
    rewritten=rewritten,
)
