"""What the certificate of a topdown release says: public content only, true of its settings."""

from __future__ import annotations

from fractions import Fraction

from spineflow.tasks.certificates.certificate import BLURRED, Exact, Facts
from spineflow.tasks.certificates.certificate import write_certificate as write
from spineflow.tasks.certificates.statement import Loss, Statement
from spineflow.tasks.ledger.accounting import compose
from spineflow.tasks.ledger.summary import REPORT_DELTA
from spineflow.tasks.noise.mechanisms import noise_deviation
from spineflow.tasks.pages.document import Block, Section, Table
from spineflow.tasks.pages.numbers import shown_epsilon
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.release.declared_statements import declared_statements
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import budget_report, guarantee_of
from spineflow.tasks.topdown.workload.privacy_curve import privacy_curve
from spineflow.tasks.topdown.workload.state_totals import PERSONS, holds_state_totals

UNITS = "units"

_METHODS = {
    "topdown": "by the TopDown Algorithm",
    "block_by_block": "block by block",
    "full_information": "by the TopDown Algorithm, from the measurements of all geolevels combined",
}


def write_certificate(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write `certificate.html` and `certificate.md` beside the checked microdata."""
    write(run, settings, facts_of(settings))


def facts_of(settings: TopdownSettings) -> Facts:
    """What was protected, against which change, with which noise, and what is exact."""
    reports = [
        budget_report(settings.budget_of(universe), settings.schema_of(universe))
        for universe in settings.run.universes
    ]
    if settings.is_private:
        noise = "with random noise of a known distribution"
    elif settings.privacy.infinite:
        noise = "without noise"
    else:
        noise = "with noise that can be repeated from the seed in the settings"
    method = _METHODS[settings.run.estimator]
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
    return Facts(
        made=made,
        public=_in_plain_words(settings),
        statement=statement_of(settings, reports),
        exact=exact_of(settings),
        sections=tuple(_allocation(settings, report) for report in reports),
    )


def statement_of(settings: TopdownSettings, reports: list[dict]) -> Statement:
    """The guarantee for one record of each universe, where the declared facts stay the same."""
    universes = settings.run.universes
    budgets = [settings.budget_of(universe) for universe in universes]
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    curve = privacy_curve(budgets)
    together = ""
    if len(universes) > 1:
        both = compose([guarantee_of(budget) for budget in budgets])
        together = (
            f"The losses of {' and '.join(universes)} add up: whoever counts both as one person's "
            f"data has rho {both.parameter} of bounded zCDP (about {float(both.parameter):.4g})."
        )
    further: list[Block] = [] if curve is None else [curve]
    return Statement(
        None,
        tuple(_protected(settings, universe) for universe in universes),
        tuple(_change(settings, universe) for universe in universes),
        tuple(
            Loss(budget.universe, budget.mechanism, guarantee_of(budget), _delta(budget.delta))
            for budget in budgets
        ),
        together,
        further=(*further, *_parts_of_a_record(reports)),
    )


def exact_of(settings: TopdownSettings) -> tuple[Exact, ...]:
    """The declared facts of the universes that ran, and what the release shows of them."""
    universes, exact = settings.run.universes, []
    if settings.is_declared:
        return tuple(Exact(*statement) for statement in declared_statements(settings))
    if holds_state_totals(settings):
        exact.append(
            Exact("state totals", "the population of every state is released without noise")
        )
    if UNITS in universes:
        exact += [
            Exact(
                "housing units", "the number of housing units of every block is released as it is"
            ),
            Exact(
                "group quarters",
                "the number of occupied facilities of every block is released as it is",
            ),
        ]
    if PERSONS in universes:
        exact += [
            Exact(
                "addresses",
                "the numbers of housing units and of occupied facilities by type in every block "
                "are used as they are, for the spine and for the bounds on persons",
            ),
            _bounds(settings),
        ]
    exact += [
        Exact(
            "structural zero",
            f"{zero.name}: no {universe} with "
            + " and ".join(f"{name} in {list(levels)}" for name, levels in zero.where.items()),
        )
        for universe in universes
        for zero in settings.zeros_of(universe)
    ]
    return tuple(exact)


def _bounds(settings: TopdownSettings) -> Exact:
    declared = settings.compiled_census.universes[PERSONS]
    most = f"{max(bound.at_most or 0 for bound in declared.bounds):,}"
    if declared.bounded_attribute(settings.schema_of(PERSONS)) is not None:
        text = (
            f"in every block, 1 to {most} persons per facility of each type, and at most {most} "
            "per housing unit"
        )
    else:
        text = (
            f"in every block, at least as many persons as facilities, and at most {most} per "
            "facility or housing unit"
        )
    return Exact("bounds on persons", text)


def _protected(settings: TopdownSettings, universe: str) -> str:
    attributes = ", ".join(settings.schema_of(universe).attributes)
    if settings.is_declared:
        return f"Protected is every record of {universe}: {attributes}, and its area."
    one = {PERSONS: "every person's record", UNITS: "every housing unit's record"}
    what = one.get(universe, f"every record of {universe}")
    return f"Protected is {what}: {attributes}, and its block."


def _change(settings: TopdownSettings, universe: str) -> str:
    if universe == UNITS and not settings.is_declared:
        return (
            "The guarantee compares two tables that differ in one housing unit, which is occupied "
            "in one and vacant in the other; the number of housing units of every block is the "
            "same in both."
        )
    if universe != PERSONS or settings.is_declared:
        return (
            f"The guarantee compares two tables that differ in one record of {universe}, and that "
            "agree in the facts which are public by declaration."
        )
    within = "moves within the same state" if holds_state_totals(settings) else "moves anywhere"
    return (
        "The guarantee compares two tables that differ in one person's record, whatever it says "
        f"in either, where the declared facts below are the same in both: the person {within}, "
        "and every occupied facility stays occupied."
    )


def _in_plain_words(settings: TopdownSettings) -> str:
    exact = []
    if holds_state_totals(settings):
        exact.append("the population of each state")
    if UNITS in settings.run.universes and not settings.is_declared:
        exact.append("the number of housing units and facilities of each block")
    told = f" Exact are only {' and '.join(exact)}." if exact else ""
    return (
        f"{BLURRED}{told} Numbers of small places, single blocks above all, are mostly noise: add "
        "them up before you use them. Rows of these files are not persons or homes; they are made "
        "so that their sums are the published counts."
    )


def _parts_of_a_record(reports: list[dict]) -> tuple[Block, ...]:
    """What protects one attribute of a record, or its block within a known geounit."""
    attributes = tuple(
        (report["universe"], name, shown_epsilon(epsilon))
        for report in reports
        for name, epsilon in report["attributes"].items()
    )
    within = tuple(
        (report["universe"], name, shown_epsilon(epsilon))
        for report in reports
        for name, epsilon in report["block_within"].items()
    )
    return (
        "Epsilon for an attacker who lacks one attribute only:",
        Table(("universe", "attribute", "epsilon"), attributes),
        "Epsilon for the block of a record, when its geounit at a geolevel is known:",
        Table(("universe", "known geounit", "epsilon"), within),
    )


def _allocation(settings: TopdownSettings, report: dict) -> Section:
    rows = tuple(
        (
            query["geolevel"],
            query["query"],
            query["geolevel_share"],
            query["query_share"],
            noise_deviation(query),
        )
        for query in report["queries"]
    )
    before = ", before any geounits were bypassed" if settings.geography.bypass else ""
    headers = ("geolevel", "query", "geolevel share", "query share", "noise s.d.")
    return Section(
        f"Noise: {report['universe']}",
        (
            "Shares of the loss by geolevel and by query, and the standard deviation of the noise "
            f"in each answer{before}. Along every path from the root to a block the shares add to "
            "exactly 1.",
            Table(headers, rows, "noise s.d."),
        ),
    )


def _delta(delta: Fraction | None) -> Fraction:
    return REPORT_DELTA if delta is None else delta
