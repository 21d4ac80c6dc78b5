"""The certificate of a topdown release: public content only, true of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...pages.document import NONE, Block, Table
from ...pages.numbers import shown_bound, shown_delta, shown_epsilon
from ...pages.template import parts_of, table
from ...products.budget import Cost
from ...products.certificate import Epsilons, Facts
from ...products.privacy_curves import TradeOff, told_trade_offs, trade_off
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..workload.costs import cost_of, reported_delta
from ..workload.exact_loss import paths_of
from ..workload.privacy_curve import (
    OTHERS,
    QUESTION,
    privacy_curve,
    reaches_of_run,
    scope_of_figures,
    whole_curves,
)
from ..workload.statement import sentences_about, text_of
from .exact_losses import ExactLoss, loss_of
from .margins import universes_without_margins


def facts_of_run(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """The facts of a run's certificate, with the exact figures of the spine that ran."""
    losses = losses_of(run, settings)
    none = universes_without_margins(run, settings).values()
    figures = exact_figures(run, settings, losses)
    return with_losses(facts_of(settings, figures, tuple(none)), losses)


def facts_of(
    settings: TopdownSettings, figures: Sequence[Block] = (), without_margins: Sequence[str] = ()
) -> Facts:
    """The facts of a certificate.

    Args:
        figures: those by the noise itself, beside those of the guarantee.
        without_margins: why universes have no margins.
    """
    costs = [cost_of(settings, universe) for universe in settings.run.universes]
    attributes = {own.plan.universe: own.attributes for own in costs}
    within = {own.plan.universe: own.block_within for own in costs}
    budgets = [settings.budget_of(name) for name in settings.run.universes]
    return Facts(
        "topdown/templates/certificate.md.j2",
        {
            "exactly": [text_of(settings, own) for own in sentences_about(settings, "plain")],
            "figures": figures,
            "curve": None if figures else privacy_curve(budgets),
            "scope": scope_of_figures(settings),
            "attributes": _parts_of_a_record("attribute", attributes, shown_epsilon, "epsilon"),
            "within": _parts_of_a_record(
                "known geounit", _by_name(settings, within), shown_epsilon, "epsilon"
            ),
            "allocation": {own.plan.universe: _allocation(own) for own in costs},
            "without_margins": without_margins,
        },
        attributes={name: _by_rho(own) for name, own in attributes.items()},
        block_within={name: _by_rho(own) for name, own in within.items()},
    )


def losses_of(run: RunDirectory, settings: TopdownSettings) -> dict[str, ExactLoss]:
    """The exact losses that are known, by universe; nothing without noise."""
    told = settings.run.universes if settings.is_private else ()
    losses = {universe: loss_of(run, settings, universe) for universe in told}
    return {universe: loss for universe, loss in losses.items() if loss is not None}


def with_losses(facts: Facts, losses: Mapping[str, ExactLoss]) -> Facts:
    """Facts with the exact figures of a run beside those by rho."""

    def beside(figures: Mapping[str, Epsilons], part: str) -> dict[str, Epsilons]:
        return {
            universe: {
                name: {**own, "exact": getattr(losses[universe].parts, part)[name]}
                if universe in losses
                else own
                for name, own in found.items()
            }
            for universe, found in figures.items()
        }

    return replace(
        facts,
        exact_epsilons={universe: own.epsilon for universe, own in losses.items()},
        attributes=beside(facts.attributes, "attributes"),
        block_within=beside(facts.block_within, "block_within"),
    )


def exact_figures(
    run: RunDirectory, settings: TopdownSettings, known: Mapping[str, ExactLoss]
) -> tuple[Block, ...]:
    """The exact epsilon of every universe, from the noise that was drawn on the paths of its spine,
    with what it means for one person and the curve.

    Nothing without noise, and where it is not known for any universe.
    """
    if not known:
        return ()
    budgets = {universe: settings.budget_of(universe) for universe in settings.run.universes}
    rows = [
        {
            "universe": name,
            "exact epsilon": shown_bound(own.epsilon),
            "at delta": shown_delta(reported_delta(budgets[name])),
            "kinds of paths": own.n_paths,
        }
        for name, own in known.items()
    ]
    all_tests = tests_of_changes(run, settings, known)
    tests = {name: test for name, test in all_tests.items() if test is not None}
    points = {name: own.points for name, own in known.items() if own.points is not None}
    attributes = {name: own.parts.attributes for name, own in known.items()}
    within = {name: own.parts.block_within for name, own in known.items()}
    _, _, (section,) = parts_of(
        "topdown/templates/exact.md.j2",
        epsilons=table(rows, "exact epsilon"),
        scope=scope_of_figures(settings),
        declared={
            universe: section.guarantee[0]
            for universe, section in settings.budget.items()
            if section.guarantee is not None and universe in settings.run.universes
        },
        tests=told_trade_offs(tests, OTHERS, QUESTION) if tests else None,
        untested=[name for name, test in all_tests.items() if test is None],
        attributes=_parts_of_a_record("attribute", attributes, _bound, "exact epsilon"),
        last=settings.last_geolevel,
        within=_parts_of_a_record(
            "known geounit", _by_name(settings, within), _bound, "exact epsilon"
        ),
        curve=privacy_curve(list(budgets.values()), points),
    )
    return section.blocks


def tests_of_changes(
    run: RunDirectory, settings: TopdownSettings, known: Mapping[str, ExactLoss]
) -> dict[str, TradeOff | None]:
    """The trade-off of every protected change, over all universes that it changes; None where it is
    not known.
    """
    changes = reaches_of_run(settings)
    if all(name in known for name in changes):
        return {name: known[name].tests for name in changes}
    paths = {name: paths_of(spine_of(run, name)) for name in settings.run.universes}
    return {
        name: known[name].tests if name in known else (None if curve is None else trade_off(curve))
        for name, curve in whole_curves(settings, paths).items()
    }


def _by_rho(epsilons: Mapping[str, float | str]) -> Epsilons:
    return {name: {"conversion": own, "exact": None} for name, own in epsilons.items()}


def _parts_of_a_record(
    known: str,
    epsilons: Mapping[str, Mapping[str, Any]],
    shown: Callable[[Any], str],
    header: str,
) -> Table:
    """What protects one attribute of a record, or its area within a `known` geounit."""
    rows = [(name, part, shown(e)) for name, own in epsilons.items() for part, e in own.items()]
    return Table(("universe", known, header), tuple(rows))


def _by_name(
    settings: TopdownSettings, within: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Figures of universes by geolevel, by the names of the spine's geounits there."""
    return {
        universe: {settings.level_names(universe)[name]: own for name, own in figures.items()}
        for universe, figures in within.items()
    }


def _bound(epsilon: float | None) -> str:
    return NONE if epsilon is None else shown_bound(epsilon)


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
