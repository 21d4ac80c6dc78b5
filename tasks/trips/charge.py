"""The charged plan of a trips run: its guarantee, cost, exact privacy curve and design.

Noise is fixed for every level before anything is drawn. The measured nodes of a level follow from
the releases above it; in any case, a person moves no more of them, and by no more, than if all were
measured, so that the worst pairs of the levels compose (`ledger.exact_curve`).

A person makes up to m trips. Let there be k of them in one table and m in the other (k is 0 where a
person is added or removed, m where everybody makes m, and otherwise anything up to m; more trips on
both sides move every count as far or further). Then

- the total moves by m - k, and is not measured where that is 0 in any case;
- at any other level the m trips are in nodes whose moves add up to m, and the k trips in others:
  the worst is one node that moves by m and one that moves by k (the second rule of
  `ledger.exact_curve`), of two leaves that differ from the first measured level on. Trips in the
  same node cancel;
- where no two trips are in one leaf, m + k leaves move by one. A level above has the worst case of
  any trips if one of its nodes has m leaves. Between the two, where nodes have several leaves but
  fewer than m, the worst change is unknown, and no curve is given.

A person whose trips beyond m are dropped at random moves only counts of the remaining trips: a
curve that bounds every choice bounds the random one. The stability histogram adds noise to positive
counts alone, so that neighbouring tables have different counts: it has its epsilon and delta, and
no curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..ledger.accounting import BOUNDED, UNBOUNDED, Guarantee
from ..ledger.exact_curve import MOST_COMBINATIONS, PrivacyCurve, count_moves, known_curve
from ..products.budget import Cost
from ..products.plan import ExactFact, Plan, Statement
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.settings import Refuse, without_section
from ..solvers.level_design import (
    DesignedLevels,
    LevelDesign,
    LevelErrors,
    RegularTree,
    design_levels,
)
from .ingest.ingest import public_plan
from .plan import Plan as TreePlan
from .plan import largest_leaf_counts, mean_fanouts, measured_file, plan_file, read_plan
from .settings import FULL_INFORMATION, TripsPrivacy, TripsSettings
from .tree import areas_file, leaves_file, read_tree, tree_file


def epsilons_within_areas(plan: TreePlan, delta: Fraction) -> dict[str, float | str]:
    """Epsilon of all that is measured below each level, by the level's name.

    It protects the leaves of a person's trips against an observer who knows the areas of the level
    that they are in. Trips that move within an area leave one node below and enter another: where
    the guarantee is for a person who is added or removed, this moves the squares of the counts
    twice as far.
    """
    if plan.threshold is not None:
        return {}
    is_added = plan.guarantee is not None and plan.guarantee.neighbors == UNBOUNDED
    nodes = 2 if is_added else 1
    return {
        plan.measures[level].level: plan.universe(delta).epsilons(
            nodes * sum((own for below, own in plan.shares.items() if below > level), Fraction(0))
        )["tight"]
        for level in plan.levels[:-1]
    }


def level_errors(plan: TreePlan) -> LevelErrors | None:
    """Errors of counts as functions of the measured levels' losses.

    Levels are combined on a tree of the mean fan-outs: jointly where all nodes are measured and
    used, and else each fitted to the one above. None for mechanisms that share no budget of zCDP
    among levels.
    """
    if plan.guarantee is None or plan.threshold is not None or len(plan.levels) == 1:
        return None
    rho = plan.guarantee.parameter
    tree = RegularTree(
        tuple(mean_fanouts(plan.tree)),
        is_root_exact=0 not in plan.measures,
        is_combined=plan.mechanism == FULL_INFORMATION and plan.measures_all,
    )
    units = {n: float(plan.parameter(n) * own.share * rho) for n, own in plan.measures.items()}
    names = {level: own.level for level, own in plan.measures.items()}
    return LevelErrors(names, units, tree, 1, "rho")


def exact_curve(plan: TreePlan, privacy: TripsPrivacy) -> PrivacyCurve | None:
    """The curve between tables that differ in one person; None where it is not known."""
    m, levels = privacy.trips_per_person, list(plan.levels)
    if plan.guarantee is None or plan.threshold is not None or m >= MOST_COMBINATIONS:
        return None
    # Only the total distinguishes tables of more and of fewer trips, and the most trips are first.
    fewer = m if 0 in levels else 0
    others: Iterable[int] = [0]
    if privacy.is_bounded:
        others = [m] if privacy.has_invariant_total else range(m, m - fewer - 1, -1)
    largest = {level: largest_leaf_counts(plan.tree, level, 1)[0] for level in levels if level}
    # A person's distinct trips cannot all be in one node of these levels.
    spread = [level for level, n in largest.items() if privacy.distinct_trips and n < m]
    if any(largest[level] != 1 for level in spread):
        return None

    def moves(level: int, k: int) -> Mapping[int, int]:
        """How far counts of a level move by m trips in one table and k others in the other."""
        if level in spread:
            return {1: m + k}
        return Counter([m - k] if level == 0 else [m, k])

    measures = plan.measures.items()
    choices = [count_moves((own.noise, moves(n, k)) for n, own in measures) for k in others]
    return known_curve({}, [choices])


def curve_of_change(plan: TreePlan, privacy: TripsPrivacy) -> PrivacyCurve | None:
    """The curve of one person's change, which the ledger counts, for any neighbours of the plan;
    None as `exact_curve`.

    Where the plan is for a person who is added or removed, a changed person may make any number of
    trips before and after.
    """
    if not privacy.is_bounded:
        privacy = privacy.model_copy(update={"neighbors": BOUNDED, "total": "measured"})
    return exact_curve(plan, privacy)


def plan_of(settings: TripsSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and public areas; one charge covers all levels.

    The part `block_within` of its cost is the protection of a trip's leaf against an observer who
    knows its node at a level.
    """
    own = public_plan(settings) if run is None else read_plan(run)
    delta, privacy = settings.report_delta, settings.privacy
    question = "whether this one's trips are there or not"
    if privacy.is_bounded:
        question = "whether this one's trips are as suspected rather than others"
    cost = Cost(
        replace(own.universe(delta), curve=curve_of_change(own, privacy)),
        exact_curve(own, privacy),
        parts={"block_within": epsilons_within_areas(own, delta)},
        further={} if own.threshold is None else {"threshold": own.threshold},
    )
    plan = Plan.of(
        settings,
        [cost],
        statement_of(settings, own),
        exact_of(own, None if run is None else read_tree(run).total),
        question="" if own.threshold is not None else question,
    )
    if run is None:
        return plan
    deciding = [tree_file(run), areas_file(run), plan_file(run)]
    return plan.decided_by(run, deciding, [leaves_file(run)])


def measurement_files(run: RunDirectory, settings: TripsSettings) -> list[Path]:
    """The files of noisy counts of all measured levels."""
    return [measured_file(run, level) for level in read_plan(run).levels]


def statement_of(settings: TripsSettings, plan: TreePlan) -> Statement:
    """The guarantee for one person with all trips."""
    change = [f"The guarantee compares two tables that differ by {_change(plan.guarantee)}."]
    if plan.threshold is not None:
        change.append(
            "Which cells have no trips is not hidden behind noise: a cell is published only if its "
            "noisy count passes a threshold, and delta is the chance that a cell of one person "
            "alone is."
        )
    protected = f"Protected is every person with all trips. {_contribution(settings)}"
    more = "A person with more trips than that is protected less."
    return Statement(None, (protected,), tuple(change), unprotected=(more,))


def exact_of(plan: TreePlan, total: int | None) -> Iterator[ExactFact]:
    """The declared facts: the areas, and the number of trips where neighbours have the same."""
    yield ExactFact("areas", "which areas, or values of the levels, there are")
    if total is not None:
        where = "released" if plan.is_top_down else "told by the run's public files"
        yield ExactFact("number of trips", f"there are {total:,} in all, {where} without noise")


def _change(guarantee: Guarantee | None) -> str:
    """Difference between two neighbouring tables."""
    if guarantee is not None and guarantee.neighbors == BOUNDED:
        return "one person's trips, which go elsewhere in the other"
    return "one person, who is in one of them alone with all trips"


def _contribution(settings: TripsSettings) -> str:
    """How many trips a person makes, as the settings say."""
    privacy = settings.privacy
    m = privacy.trips_per_person
    exactly = "exactly" if privacy.has_invariant_total else "at most"
    trips = f"{exactly} {m:,} {'trip' if m == 1 else 'trips'}"
    if m > 1:
        trips += ", no two in one cell" if privacy.distinct_trips else ", wherever they go"
    return f"A person makes {trips}."


class TripsDesignSettings(TripsSettings):
    """A settings file of trips with a section [design]; targets are numbers or names of levels."""

    ASIDE = frozenset()

    design: LevelDesign

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse settings that the product and the design cannot have."""
        super().refuse_invalid(refuse)
        self.design.refuse_invalid(self.privacy.infinite, refuse)


def optimize_shares(settings: TripsDesignSettings) -> tuple[DesignedLevels, TripsSettings]:
    """The best shares for a design, and the settings with them; reads the public areas alone.

    Raises InputRefused as `design_levels`, and for mechanisms that share no budget among levels.
    """
    own = without_section(TripsSettings, settings)
    plan = public_plan(own)
    errors = level_errors(plan)
    if errors is None or plan.guarantee is None:
        raise InputRefused(
            f"design: {plan.mechanism} shares no budget among levels here; choose inftda, or "
            "inftda_full_information, for a tree of two measured levels or more."
        )
    found = design_levels(errors, settings.design, plan.guarantee.parameter, plan.shares)
    mechanism = {
        "shares": tuple(found.shares[level] for level in plan.levels),
        "share_ratio": Fraction(1),
    }
    update: dict[str, Any] = {"mechanism": own.mechanism.model_copy(update=mechanism)}
    if settings.design.objective == "smallest_budget":
        # A delta is kept for display; the rho no longer corresponds to an epsilon.
        spent = {"rho": found.total, "epsilon": None, "conversion": "simple"}
        update["privacy"] = own.privacy.model_copy(update=spent)
    return found, own.model_copy(update=update)
