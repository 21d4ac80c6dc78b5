"""What the certificate of a topdown release says: public content only, true of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...census.declarations import SentenceDeclaration
from ...census.sensitivity import Norms
from ...ledger.accounting import compose
from ...noise.mechanisms import noise_deviation
from ...pages.document import NONE, Block, Section, Table
from ...pages.numbers import shown_bound, shown_delta, shown_epsilon
from ...products.certificate import BLURRED, Exact, Facts
from ...products.privacy_curves import TradeOff, told_trade_offs, trade_off
from ...products.statement import Statement
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..workload.costs import guarantee_of, noise_plan, report_of, reported_delta
from ..workload.exact_loss import paths_of
from ..workload.privacy_curve import (
    OTHERS,
    QUESTION,
    privacy_curve,
    reaches_of_run,
    scope_of_figures,
    whole_curves,
)
from ..workload.protected_tables import per_person, protected_tables
from .declared_statements import declared_statements
from .exact_losses import ExactLoss, loss_of
from .margins import universes_without_margins

_METHODS = {
    "topdown": "by the TopDown Algorithm",
    "block_by_block": "{area} by {area}",
    "full_information": "by the TopDown Algorithm, from the measurements of all geolevels combined",
}


def facts_of_run(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """The facts of a run's certificate, with the exact figures of the spine that ran."""
    found = facts_of(settings, exact_figures(run, settings))
    none = universes_without_margins(run, settings)
    if not none:
        return found
    without = Section("Tables without margins", tuple(f"{why}." for why in none.values()))
    return replace(found, sections=(*found.sections, without))


def facts_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """What the certificate says of a release from measurements alone."""
    return facts_of(settings)


def statement_of_run(run: RunDirectory, settings: TopdownSettings) -> Statement:
    """What is guaranteed."""
    return facts_of(settings).statement


def facts_of(settings: TopdownSettings, figures: Sequence[Block] = ()) -> Facts:
    """What was protected, against which change, with which noise, and what is exact.

    `figures` stand beside those of the guarantee.
    """
    reports = [report_of(settings, universe) for universe in settings.run.universes]
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
        statement=statement_of(settings, reports, figures),
        exact=exact_of(settings),
        sections=tuple(_allocation(settings, report) for report in reports),
    )


def exact_figures(run: RunDirectory, settings: TopdownSettings) -> tuple[Block, ...]:
    """The exact epsilon of every universe, from the noise that was drawn on the paths of its spine,
    with what it means for one person and the curve.

    Nothing without noise, and where it is not known for any universe.
    """
    told = settings.run.universes if settings.is_private else ()
    losses = {universe: loss_of(run, settings, universe) for universe in told}
    known = {universe: loss for universe, loss in losses.items() if loss is not None}
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


def statement_of(
    settings: TopdownSettings, reports: list[dict], figures: Sequence[Block] = ()
) -> Statement:
    """The guarantee for one record of each universe, where the declared facts stay the same.

    `figures`, where there are any, have the curve of this run.
    """
    universes = settings.run.universes
    budgets = [settings.budget_of(universe) for universe in universes]
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    curve = None if figures else privacy_curve(budgets)
    together = ""
    if len(universes) > 1:
        both = compose([guarantee_of(budget) for budget in budgets])
        together = (
            f"The losses of {' and '.join(universes)} add up: whoever counts both as one person's "
            f"data has rho {both.parameter} of bounded zCDP (about {float(both.parameter):.4g})."
        )
    person = per_person(settings)
    if person is not None:
        is_one = all(budget.charge == Norms() for budget in budgets)
        counted = "one record of each" if is_one else "less"
        together += (
            f" One person's change of all records that follow from it has rho {person} (about "
            f"{float(person):.4g}) over {' and '.join(universes)}; the ledger counts {counted}."
        )
    return Statement(
        None,
        tuple(_protected(settings, universe) for universe in universes),
        tuple(_change(settings, universe) for universe in universes),
        tuple(noise_plan(budget).stated for budget in budgets),
        together,
        further=(
            *figures,
            *([] if curve is None else [curve]),
            *(() if figures else scope_of_figures(settings)),
            *_parts_of_a_record(
                {report["universe"]: report["attributes"] for report in reports},
                {report["universe"]: report["block_within"] for report in reports},
                shown_epsilon,
                "epsilon",
                "Epsilon for an attacker who lacks one attribute only:",
                f"Epsilon for the {settings.last_geolevel} of a record, when its geounit at a "
                "geolevel is known:",
            ),
        ),
    )


def exact_of(settings: TopdownSettings) -> tuple[Exact, ...]:
    """The declared facts of the universes that ran, and what else leaves them exactly.

    Sentences of the census tell facts in its own words; every other fact is told in words that are
    made from the declaration.
    """
    sentences = list(_sentences(settings, "exact"))
    stated = {key for sentence in sentences for key in sentence.tells}
    exact = [Exact(sentence.name, _text(settings, sentence)) for sentence in sentences]
    exact += [fact for key, fact in declared_statements(settings) if key not in stated]
    return tuple(exact)


def _sentences(
    settings: TopdownSettings, about: str, universe: str | None = None
) -> Iterator[SentenceDeclaration]:
    """The declared sentences about something, of one universe or of all that ran, that hold."""
    for sentence in settings.compiled_census.certificate:
        name = sentence.universe
        if sentence.about != about or name not in settings.run.universes:
            continue
        there = {*settings.schema_of(name).attributes, *_held_invariants(settings, name)}
        holds = there.issuperset(sentence.holds) and there.isdisjoint(sentence.lacks)
        if holds and universe in (None, name):
            yield sentence


def _held_invariants(settings: TopdownSettings, universe: str) -> Iterator[str]:
    """Names of the invariants that the release has."""
    census, geolevels = settings.compiled_census, settings.budget[universe].geolevels
    for invariant in census.universes[universe].invariants:
        is_last = invariant.geolevel == census.geolevels[-1]
        stands = invariant.above is None or invariant.geolevel in geolevels
        if is_last or (stands and not settings.blocks_only):
            yield invariant.name


def _text(settings: TopdownSettings, sentence: SentenceDeclaration) -> str:
    """The words of a sentence, with what its settings put in."""
    name = sentence.universe
    bounds = settings.compiled_census.universes[name].bounds
    most = max((bound.at_most or 0 for bound in bounds), default=0)
    attributes = ", ".join(settings.schema_of(name).attributes)
    return sentence.text.replace("{attributes}", attributes).replace("{at_most}", f"{most:,}")


def _protected(settings: TopdownSettings, universe: str) -> str:
    for sentence in _sentences(settings, "protected", universe):
        return _text(settings, sentence)
    attributes = ", ".join(settings.schema_of(universe).attributes)
    return (
        f"Protected is every record of {universe}: {attributes}, and its area"
        f"{_exceptions(settings, universe)}."
    )


def _exceptions(settings: TopdownSettings, universe: str) -> str:
    """What of a universe's records is not protected, as the end of a sentence."""
    tables = [
        reach.table
        for reach in settings.compiled_census.universes[universe].reaches
        if reach.records is None and reach.table != settings.compiled_census.geography.table
    ]
    if not tables:
        return ""
    names = " and ".join(tables)
    return f", but for what it takes from records of {names}, which are the same in both"


def _change(settings: TopdownSettings, universe: str) -> str:
    compared = (
        f"The guarantee compares two tables that differ in one record of {universe}, and that "
        "agree in the facts which are public by declaration."
    )
    for sentence in _sentences(settings, "change", universe):
        compared = _text(settings, sentence)
    return f"{compared} {protected_tables(settings, universe)}"


def _in_plain_words(settings: TopdownSettings) -> str:
    exact = [_text(settings, sentence) for sentence in _sentences(settings, "plain")]
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


def _allocation(settings: TopdownSettings, report: dict) -> Section:
    told = ("geolevel", "query", "geolevel_share", "query_share")
    rows = ((*map(query.get, told), noise_deviation(query)) for query in report["queries"])
    before = ", before any geounits were bypassed" if settings.geography.bypass else ""
    headers = ("geolevel", "query", "geolevel share", "query share", "noise s.d.")
    return Section(
        f"Noise: {report['universe']}",
        (
            "Shares of the loss by geolevel and by query, and the standard deviation of the noise "
            f"in each answer{before}. Along every path from the root to a single "
            f"{settings.area_word} the shares add to exactly 1.",
            Table(headers, tuple(rows), "noise s.d."),
        ),
    )
