"""What the certificate of a topdown release says: public content only, true of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...pages.document import NONE, Block, Section, Table
from ...pages.numbers import shown_bound, shown_delta, shown_epsilon
from ...products.budget import Cost
from ...products.certificate import BLURRED, Epsilons, Facts
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

_METHODS = {
    "topdown": "by the TopDown Algorithm",
    "block_by_block": "{area} by {area}",
    "full_information": "by the TopDown Algorithm, from the measurements of all geolevels combined",
}


def facts_of_run(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """The facts of a run's certificate, with the exact figures of the spine that ran."""
    losses = losses_of(run, settings)
    found = with_losses(facts_of(settings, exact_figures(run, settings, losses)), losses)
    none = universes_without_margins(run, settings)
    if not none:
        return found
    without = Section("Tables without margins", tuple(f"{why}." for why in none.values()))
    return replace(found, sections=(*found.sections, without))


def facts_of(settings: TopdownSettings, figures: Sequence[Block] = ()) -> Facts:
    """What was protected, against which change, with which noise, and what is exact.

    `figures` stand beside those of the guarantee.
    """
    costs = [cost_of(settings, universe) for universe in settings.run.universes]
    if settings.is_private:
        noise = "with random noise of a known distribution"
    elif settings.privacy.infinite:
        noise = "without noise"
    else:
        noise = "with noise that can be repeated from the seed in the settings"
    method = _METHODS[settings.run.estimator].format(area=settings.area_word)
    made = (
        f"{method}: counts of the confidential records were measured {noise}, and everything else "
        "was computed from those measurements, from the facts named below that are public by "
        "declaration, and from public geography"
    )
    if not settings.draws_noise:
        made = (
            f"{method}, from noisy measurements that others have published, from the facts named "
            "below that are public by declaration, and from public geography. No record was read, "
            "and no noise drawn; the guarantee below is that of the measurements, whose variances "
            "were held to it"
        )
    if not settings.has_all_measurements:
        made += (
            ". Of the answers that the loss below pays for, only those were drawn that could still "
            "matter once the geounits above had been estimated; they must not be used as if they "
            "were all"
        )
    return Facts(
        made=made,
        public=_in_plain_words(settings),
        sections=tuple(_allocation(settings, cost) for cost in costs),
        figures=(*figures, *_further(settings, costs, has_figures=bool(figures))),
        attributes={own.plan.universe: _by_rho(own.attributes) for own in costs},
        block_within={own.plan.universe: _by_rho(own.block_within) for own in costs},
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
    rows = tuple(
        (name, shown_bound(own.epsilon), shown_delta(reported_delta(budgets[name])), own.n_paths)
        for name, own in known.items()
    )
    headers = ("universe", "exact epsilon", "at delta", "kinds of paths")
    declared = [
        f"The rho of {universe} was chosen by this exact figure, as the largest for which it is at "
        f"most {shown_bound(section.guarantee[0])}."
        for universe, section in settings.budget.items()
        if section.guarantee is not None and universe in settings.run.universes
    ]
    exact = {name: own.points for name, own in known.items() if own.points is not None}
    all_tests = tests_of_changes(run, settings, known)
    tests = {name: test for name, test in all_tests.items() if test is not None}
    curve = privacy_curve(list(budgets.values()), exact)
    return (
        "The epsilon above follows from rho alone. The noise itself gives less, exactly: the "
        "largest loss over all changes of one record, from every kind of path through the spine to "
        "every other, as an upper bound whose numerical errors are all on the safe side.",
        Table(headers, rows, "exact epsilon"),
        *scope_of_figures(settings),
        *declared,
        *(told_trade_offs(tests, OTHERS, QUESTION) if tests else ()),
        *(
            f"No such figure is worked out for {name}: its guarantee is that by rho."
            for name, test in all_tests.items()
            if test is None
        ),
        *_parts_of_a_record(
            {name: own.parts.attributes for name, own in known.items()},
            {name: own.parts.block_within for name, own in known.items()},
            lambda epsilon: NONE if epsilon is None else shown_bound(epsilon),
            "exact epsilon",
            "Exact epsilon for an attacker who lacks one attribute only, on the worst path of the "
            "spine:",
            f"Exact epsilon for the {settings.last_geolevel} of a record, when its geounit at a "
            "geolevel is known, also where that geounit is bypassed and the geolevels below it "
            "have its share of the loss:",
        ),
        *([] if curve is None else [curve]),
    )


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


def _further(
    settings: TopdownSettings, costs: Sequence[Cost], *, has_figures: bool
) -> Iterator[Block]:
    """What rho implies beside the guarantee, and its curve where no exact figures have it."""
    if not settings.is_private:
        return
    if not has_figures:
        curve = privacy_curve([settings.budget_of(name) for name in settings.run.universes])
        yield from () if curve is None else (curve,)
        yield from scope_of_figures(settings)
    yield from _parts_of_a_record(
        {cost.plan.universe: cost.attributes for cost in costs},
        {cost.plan.universe: cost.block_within for cost in costs},
        shown_epsilon,
        "epsilon",
        "Epsilon for an attacker who lacks one attribute only:",
        f"Epsilon for the {settings.last_geolevel} of a record, when its geounit at a geolevel is "
        "known:",
    )


def _in_plain_words(settings: TopdownSettings) -> str:
    exact = [text_of(settings, sentence) for sentence in sentences_about(settings, "plain")]
    of_exact = ""
    if exact:
        of_exact = (
            f" Exact are {' and '.join(exact)}, and nothing but what stands under What is exact."
        )
    areas = f"{settings.area_word}s"
    return (
        f"{BLURRED}{of_exact} Numbers of small places, single {areas} above all, are mostly noise: "
        "add them up before you use them. Rows of these files are not persons or homes; they are "
        "made so that their sums are the published counts."
    )


def _parts_of_a_record(
    attributes: Mapping[str, Mapping[str, Any]],
    within: Mapping[str, Mapping[str, Any]],
    shown: Callable[[Any], str],
    header: str,
    of_attributes: str,
    of_areas: str,
) -> tuple[Block, ...]:
    """What protects one attribute of a record, or its area within a known geounit, by universe."""

    def table(known: str, epsilons: Mapping[str, Mapping[str, Any]]) -> Table:
        rows = ((universe, *one) for universe, own in epsilons.items() for one in own.items())
        return Table(("universe", known, header), tuple((u, n, shown(e)) for u, n, e in rows))

    return of_attributes, table("attribute", attributes), of_areas, table("known geounit", within)


def _allocation(settings: TopdownSettings, cost: Cost) -> Section:
    rows = [
        (own.level, own.query, *shares.values(), own.deviation)
        for own, shares in zip(cost.plan.measures, cost.of_queries, strict=True)
    ]
    before = ", before any geounits were bypassed" if settings.geography.bypass else ""
    headers = ("geolevel", "query", "geolevel share", "query share", "noise s.d.")
    return Section(
        f"Noise: {cost.plan.universe}",
        (
            "Shares of the loss by geolevel and by query, and the standard deviation of the noise "
            f"in each answer{before}. Along every path from the root to a single "
            f"{settings.area_word} the shares add to exactly 1.",
            Table(headers, tuple(rows), "noise s.d."),
        ),
    )
