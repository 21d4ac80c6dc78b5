"""The certificate of a topdown release: public content only, true of its settings.

The exact guarantee of the noise follows from the settings and the paths of the spine alone, and
takes seconds for every universe: a task of each universe computes it once, in parallel with the
estimates, and stores the unrounded numbers in `losses/<universe>.json`. The certificate and the
report show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ....geography.levels import Spine
from ...pages.document import Block, Table
from ...pages.template import parts_of, table
from ...products.budget import Cost, ExactEpsilons
from ...products.certificate import Facts
from ...products.privacy_curves import CurvePoints, TradeOff, curve_points, trade_off, trade_offs
from ...runs.directory import RunDirectory
from ...runs.files import write_text
from ..measurement.charge import public_plan
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..workload.costs import reported_delta, universe_plan
from ..workload.exact_loss import exact_curve, exact_epsilon, exact_parts, paths_of
from ..workload.privacy_curve import (
    OTHERS,
    QUESTION,
    privacy_curve,
    reaches_of_run,
    scope_of_figures,
    whole_curves,
)
from ..workload.statement import sentences_about, text_of
from .margins import universes_without_margins


@dataclass(frozen=True)
class ExactLoss:
    """Exact guarantee of a record of one universe, over all paths of its spine.

    epsilons : of a record and of its parts. points, tests : of the curve; None without a curve.
    """

    epsilons: ExactEpsilons
    points: CurvePoints | None
    tests: TradeOff | None


def exact_loss(settings: TopdownSettings, universe: str, spine: Spine) -> ExactLoss | None:
    """The exact loss of a universe with this spine; None where the exact epsilon is not known."""
    budget, paths = settings.budget_of(universe), paths_of(spine)
    delta = reported_delta(budget)
    stated = [own.delta for own in universe_plan(budget).at_stated_deltas()]
    whole = {str(own): exact_epsilon(budget, own, paths) for own in stated}
    if whole[str(delta)] is None:
        return None
    curve = exact_curve(budget, paths)
    parts = exact_parts(budget, settings.schema_of(universe), delta, paths)
    return ExactLoss(
        replace(parts, whole=whole),
        None if curve is None else curve_points(curve),
        None if curve is None else trade_off(curve),
    )


def keep_loss(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Compute the loss of a universe and store it."""
    found = exact_loss(settings, universe, spine_of(run, universe))
    facts = None if found is None else asdict(found)
    write_text(loss_file(run, universe), json.dumps(facts, default=np.ndarray.tolist))


def loss_of(run: RunDirectory, settings: TopdownSettings, universe: str) -> ExactLoss | None:
    """The stored loss of a universe; computed if it is missing."""
    file = loss_file(run, universe)
    if not file.exists():
        return exact_loss(settings, universe, spine_of(run, universe))
    facts = json.loads(file.read_bytes())
    if facts is None:
        return None
    if "epsilons" not in facts:  # An earlier version kept one epsilon.
        return exact_loss(settings, universe, spine_of(run, universe))
    points, tests = facts["points"], facts["tests"]
    return ExactLoss(
        ExactEpsilons(**facts["epsilons"]),
        None if points is None else CurvePoints(**{k: np.array(v) for k, v in points.items()}),
        None
        if tests is None
        else TradeOff(np.array(tests["false_negatives"]), tests["told_apart"]),
    )


def loss_file(run: RunDirectory, universe: str) -> Path:
    """File of the loss of a universe."""
    return run.root / "losses" / f"{universe}.json"


def facts_of_run(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """The facts of a run's certificate, with the exact figures of the spine that ran."""
    losses = losses_of(run, settings)
    none = universes_without_margins(run, settings).values()
    facts = facts_of(settings, exact_figures(run, settings, losses), tuple(none))
    return replace(facts, exact={universe: own.epsilons for universe, own in losses.items()})


def facts_of(
    settings: TopdownSettings, figures: Sequence[Block] = (), without_margins: Sequence[str] = ()
) -> Facts:
    """The facts of a certificate whose exact epsilons are not known.

    Args:
        figures: derived from the noise itself, in addition to the guarantee.
        without_margins: why universes have no margins.
    """
    plan = public_plan(settings)
    budgets = [settings.budget_of(name) for name in settings.run.universes]
    return Facts(
        "topdown/templates/certificate.md.j2",
        {
            "exactly": [text_of(settings, own) for own in sentences_about(settings, "plain")],
            "figures": figures,
            "curve": None if figures else privacy_curve(budgets),
            "scope": scope_of_figures(settings),
            "allocation": {own.plan.universe: _allocation(own) for own in plan.costs},
            "without_margins": without_margins,
        },
        costs=plan.costs,
        exact={},
    )


def losses_of(run: RunDirectory, settings: TopdownSettings) -> dict[str, ExactLoss]:
    """The known exact losses, by universe; empty without noise."""
    told = settings.run.universes if settings.is_private else ()
    losses = {universe: loss_of(run, settings, universe) for universe in told}
    return {universe: loss for universe, loss in losses.items() if loss is not None}


def exact_figures(
    run: RunDirectory, settings: TopdownSettings, known: Mapping[str, ExactLoss]
) -> tuple[Block, ...]:
    """The meaning of the exact epsilons for one person, and the curves, from the noise that was
    drawn on the paths of the spines.

    Empty without noise, and where no universe has a known curve.
    """
    if not known:
        return ()
    budgets = {universe: settings.budget_of(universe) for universe in settings.run.universes}
    all_tests = tests_of_changes(run, settings, known)
    tests = {name: test for name, test in all_tests.items() if test is not None}
    points = {name: own.points for name, own in known.items() if own.points is not None}
    _, _, (section,) = parts_of(
        "topdown/templates/exact.md.j2",
        scope=scope_of_figures(settings),
        declared={
            universe: section.guarantee[0]
            for universe, section in settings.budget.items()
            if section.guarantee is not None and universe in settings.run.universes
        },
        tests=trade_offs(tests, OTHERS, QUESTION) if tests else None,
        untested=[name for name, test in all_tests.items() if test is None],
        curve=privacy_curve(list(budgets.values()), points),
    )
    return section.blocks


def tests_of_changes(
    run: RunDirectory, settings: TopdownSettings, known: Mapping[str, ExactLoss]
) -> dict[str, TradeOff | None]:
    """The trade-off of every protected change, over all universes that it changes; None where
    unknown.
    """
    changes = reaches_of_run(settings)
    if all(name in known for name in changes):
        return {name: known[name].tests for name in changes}
    paths = {name: paths_of(spine_of(run, name)) for name in settings.run.universes}
    return {
        name: known[name].tests if name in known else (None if curve is None else trade_off(curve))
        for name, curve in whole_curves(settings, paths).items()
    }


def _allocation(cost: Cost) -> Table | None:
    """Shares of the loss by geolevel and query, with the deviation of the noise."""
    rows = [
        {
            "geolevel": own.place,
            "query": own.query,
            "geolevel share": shares["geolevel_share"],
            "query share": shares["query_share"],
            "noise s.d.": own.deviation,
        }
        for own, shares in zip(cost.plan.measures, cost.of_queries, strict=True)
    ]
    return table(rows, "noise s.d.")
