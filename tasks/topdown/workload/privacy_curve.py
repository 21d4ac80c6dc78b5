"""Meaning of a guarantee of topdown, in points, pictures and sentences; see
`products.privacy_curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...census.influence import Reach
from ...ledger.accounting import compose
from ...ledger.exact_curve import CurveTooExpensive, PrivacyCurve
from ...ledger.spending import compose_curves
from ...pages.document import Figure
from ...products.privacy_curves import Curves, delta_chart
from ..settings import TopdownSettings
from .budget import Budget
from .costs import guarantee_of
from .exact_loss import Path, curve_of_records, exact_curve

OTHERS = "all records but one"
QUESTION = "whether this one is as suspected rather than some other"


def curves_of(budgets: Sequence[Budget]) -> Curves | None:
    """The curves of every universe where no geounit is bypassed; None if there is no noise.

    A universe under pure DP has the rho of zCDP that it implies.
    """
    if any(budget.infinite for budget in budgets):
        return None
    return Curves(
        {budget.universe: guarantee_of(budget).bounded_rho for budget in budgets},
        {budget.universe: exact_curve(budget) for budget in budgets},
        QUESTION,
        OTHERS,
        compose([guarantee_of(budget) for budget in budgets]).parameter,
    )


def curves_of_run(settings: TopdownSettings) -> Curves | None:
    """`curves_of` the universes of a run, with curves of whole changes for hypothesis tests."""
    universes = settings.run.universes
    found = curves_of([settings.budget_of(universe) for universe in universes])
    return None if found is None else replace(found, whole=whole_curves(settings))


def reaches_of_run(settings: TopdownSettings) -> dict[str, dict[str, Reach]]:
    """By the name of every protected change, its reach in each universe that ran.

    One changed record, or person, of a table may change records of several universes. Where it
    changes one record of one universe alone, its name is the universe's; else the table's, with the
    universes. Removals from a table along a path without a bound are the same in both.
    """
    census = settings.compiled_census
    by_table: dict[str, dict[str, Reach]] = {}
    for universe in settings.run.universes:
        for reach in census.universes[universe].reaches:
            # A table may have a charged and a stated reach, which includes it.
            known = by_table.setdefault(reach.table, {}).get(universe)
            if reach.records and (known is None or (known.records or 0) <= reach.records):
                by_table[reach.table][universe] = reach
    found = {}
    for table, own in by_table.items():
        if not own or table == census.geography.table:
            continue
        is_one = [reach.records for reach in own.values()] == [1]
        names = " and ".join(own)
        found[names if is_one else f"{table} (records of {names})"] = own
    return found


def scope_of_figures(settings: TopdownSettings) -> tuple[str, ...]:
    """The change that a universe's figures refer to, where other changes are protected too."""
    if set(reaches_of_run(settings)) <= set(settings.run.universes):
        return ()
    return (
        "These figures, and those for one attribute or area, are of one record of one universe, "
        "all others being the same. A change that changes more than that has the larger loss that "
        "is stated for it.",
    )


def whole_curves(
    settings: TopdownSettings, paths: Mapping[str, Sequence[Path]] | None = None
) -> dict[str, PrivacyCurve | None]:
    """The curve of every change as of `reaches_of_run`, over all universes that it changes; None
    where it is too expensive to compute.

    `paths` are by universe, by default without bypass.
    """
    return {
        name: _composed(
            [
                curve_of_records(settings.budget_of(universe), reach, (paths or {}).get(universe))
                for universe, reach in own.items()
            ]
        )
        for name, own in reaches_of_run(settings).items()
    }


def _composed(curves: Sequence[PrivacyCurve | None]) -> PrivacyCurve | None:
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    try:
        return compose_curves(known)
    except CurveTooExpensive:
        return None


def privacy_curve(
    budgets: Sequence[Budget], exact: Mapping[str, PrivacyCurve] | None = None
) -> Figure | None:
    """Delta over epsilon of every universe and of all together, by the tight conversion of zCDP.

    `exact` are the exact curves of universes, where known. None if there is no noise.
    """
    curves = curves_of(budgets)
    return None if curves is None else delta_chart(curves, exact or {})
