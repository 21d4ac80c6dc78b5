"""All checks of a finished run of detailed groups or households, from its public files alone.

Nothing here uses the code that enumerated the groups, planned, drew the noise, postprocessed or
wrote the release, and nothing here opens `confidential/`.

One person is in one region of a type and in at most s groups of a level, s being its stability, and
moves one count of each by one: so rho is s / (2 sigma^2) and epsilon s / scale. In a level with
budget b, groups that are measured by a total only have all of b, the others gamma b in the first
stage and (1 - gamma) b in the second. The levels of a pass add up, and so do the tabulations of
households. Nobody is in two passes.

Which groups a run should show and with which counts follows from its measurements and its rules:
suppression, clipping, coterminous regions and the comparison of 'alone' with 'in any combination'
are applied here to dense arrays over the whole universe, with a threshold that is found in floating
point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from .. import plan
from ..outcome import Failures, Outcome
from ..plan import GAUSSIAN, LAPLACE, Guarantee, Measure
from ..run_files import read_settings, unusable_files_fail
from . import group_counts, universe
from .group_counts import GroupCounts
from .tables import PERSONS
from .universe import Level, Promise

SHARDS = Path("spine") / "detailed_groups_shards.json"
PRIVACY = "privacy_accounting"
CHECKS: Mapping[str, str] = {
    PRIVACY: "the plan is that of the settings, and its noise covers what a person can change",
    group_counts.COMPLETE: "every group that is due was measured once, and no other",
    group_counts.LOSS: "of all stages of every group, and the variance of the noise",
    group_counts.TABLES: "every group has the table that its noisy total of persons chose",
    group_counts.SHOWN: "no group but those that measurements, suppression and coterminous "
    "regions leave",
    group_counts.ROWS: "every shown group has each row of its table once, and no other",
    group_counts.COUNTS: "or their sums, or those of the region that lends its counts",
    group_counts.MARGINS: "of every count in the tidy file, and its variance",
    group_counts.SIGNS: "where negative counts are not allowed",
    group_counts.FILES: "text and Parquet files hold the same release and carry the stamp if due",
}
"""Each check's name, and its text when it passed."""


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a file of another form.
    """
    check_plan_of(root, universe.promises(root), failures)


def check_plan_of(root: Path, promised: Sequence[Promise], failures: Failures) -> None:
    """Like `check_privacy`, with the promises already computed."""
    settings, first = read_settings(root), promised[0]
    of_persons, infinite = first.tabulation is PERSONS, settings["privacy"]["infinite"]
    declared = settings["mechanism"].get("units_are_invariant", False)
    exact = ("groups and regions", *(("addresses",) if declared else ()))
    inputs = ["settings.toml", *map(str, (universe.GEOGRAPHY, SHARDS))]
    files = [universe.PARAMETERS / name for name in (*universe.SPECIFICATION, universe.CONFIG)]
    inputs += [
        str(name) for name in files if name.name != universe.CONFIG or (root / name).exists()
    ]
    inputs += [str(universe.INVARIANTS)] if declared else []
    if not of_persons:
        exact = (*exact, "the earlier release")
        inputs.append(str(group_counts.TOTALS))
    measures: list[Measure] = []
    counted = set()
    for promise in promised:
        cells = None if of_persons else _cells(root, promise)
        for level in promise.levels:
            n = None if cells is None else int(cells[level.rows].sum())
            if level.n if n is None else n:
                counted.add((level.region_type, level.level))
            measures += () if infinite else _measures(promise, level, n)
    every = ((kind, number) for kind in universe.REGION_TYPES for number in universe.LEVELS)
    wanted = plan.Plan(
        "detailed-groups" if of_persons else "detailed-households",
        tuple(measures),
        () if infinite else tuple(_guarantee(own.tabulation.universe, [own]) for own in promised),
        () if infinite else _stated_guarantees(promised),
        exact,
        frozenset(inputs),
        tuple(
            f"confidential/detailed_groups/{k}/{n}.parquet" for k, n in every if (k, n) in counted
        ),
        are_disjoint=first.is_private and (of_persons or not first.is_pure),
    )
    plan.check_plan(root, wanted, settings, failures)


def _cells(root: Path, promise: Promise) -> np.ndarray:
    """How many counts of each group of households are measured, shape (n_groups,)."""
    return np.append(promise.tabulation.n_cells, 0)[group_counts.tables_by_totals(root, promise)]


def _measures(promise: Promise, level: Level, n_answers: int | None) -> Iterator[Measure]:
    """The measures of a level: of persons by stage, of households one of so many answers."""
    kind, where, budget = promise.tabulation.key, level.region_type, level.budget or Fraction(0)
    parts = {f"{kind.removeprefix('h_')}/{where}/{level.level}": Fraction(1)}
    if n_answers is None:
        gamma = level.stage_1
        shares = {"total only": Fraction(1), "stage 1": gamma, "stage 2": 1 - gamma}
        parts = {f"{where}/{level.level}/{stage}": own for stage, own in shares.items()}
    for part, share in parts.items():
        of_level, _, query = part.rpartition("/")
        yield Measure(
            promise.tabulation.universe,
            of_level,
            query,
            areas=None,
            answers=n_answers,
            share=share * budget / _total([promise]),
            loss=share * budget,
            moved=level.stability,
            mechanism=_mechanism(promise),
            part=part,
        )


def _stated_guarantees(promised: Sequence[Promise]) -> tuple[Guarantee, ...]:
    """The guarantees that the statement names: of passes, or of tabulations whose epsilons add."""
    first = promised[0]
    if len(promised) > 1 and first.is_pure:
        return tuple(_guarantee(own.tabulation.universe, [own]) for own in promised)
    return tuple(_guarantee(f"{name.upper()} pass", promised, (name,)) for name in first.passes)


def _guarantee(
    universe: str, promised: Sequence[Promise], passes: Sequence[str] | None = None
) -> Guarantee:
    """The guarantee for some tabulations in some passes, by default all."""
    first = promised[0]
    is_of_one = first.tabulation is PERSONS
    return Guarantee(
        universe,
        "unbounded" if is_of_one else "unbounded_one_of_several",
        _total(promised, passes),
        _mechanism(first),
        bounded_factor=Fraction(2 if is_of_one else 4),
    )


def _total(promised: Sequence[Promise], passes: Sequence[str] | None = None) -> Fraction:
    """The budgets of a pass add up, and of several passes the largest counts."""
    names = promised[0].passes if passes is None else passes
    return max(sum(own.total_of(name) for own in promised) for name in names) + Fraction(0)


def _mechanism(promise: Promise) -> str:
    return LAPLACE if promise.is_pure else GAUSSIAN


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """The outcome of each of `CHECKS` of the run below `root` whose release is in `release`.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that a
    run passes only if everything was seen to be right.
    """
    failures = {name: Failures() for name in CHECKS}
    of_release = [own for name, own in failures.items() if name != PRIVACY]
    subject = PERSONS.universe
    with unusable_files_fail(*failures.values()):
        promised = universe.promises(root)
        if promised[0].tabulation is not PERSONS:
            subject = "households"
        with unusable_files_fail(failures[PRIVACY]):
            check_plan_of(root, promised, failures[PRIVACY])
        with unusable_files_fail(*of_release):
            counted = []
            for promise in promised:
                counts = group_counts.check_measurements(root, promise, failures)
                apply_rules(counts, promise)
                group_counts.check_texts(release, promise, counts, failures)
                counted.append((promise, counts))
            group_counts.check_tidy(release, counted, failures)
    return tuple(failures[name].outcome(name, subject, CHECKS[name]) for name in CHECKS)


def apply_rules(counts: GroupCounts, promise: Promise) -> None:
    """Turn measured counts into the counts that should be released, in place."""
    for level in promise.levels:
        _suppress(counts, level, promise)
    if not promise.allow_negative_counts:
        np.maximum(counts.cells, 0, out=counts.cells)
    if promise.donor_order is not None:
        _copy_donors(counts, promise, promise.donor_order)
    if promise.counterparts is not None:
        for level in promise.levels:
            _suppress_alone(counts, level, promise)


def _suppress(counts: GroupCounts, level: Level, promise: Promise) -> None:
    chance = promise.zero_suppression_chance
    if not chance or level.region_type in universe.STATE_TYPES:
        return
    threshold = group_counts.threshold_of(level.noise(level.loss(is_total_only=False)), chance)
    totals = counts.cells[counts.first_cell[level.rows]]
    small = (counts.table[level.rows] == 0) & ~level.is_total_only & (totals <= threshold)
    counts.is_shown[level.rows] &= ~small


def _copy_donors(counts: GroupCounts, promise: Promise, donor_order: Sequence[str]) -> None:
    """For every set of regions and every iteration, the first shown group's counts for all."""
    parts = []
    for level in sorted(promise.levels, key=lambda own: donor_order.index(own.region_type)):
        sets = pd.Series(level.regions).map(promise.coterminous.get(level.region_type, {})).dropna()
        n = len(level.iterations)
        group = level.first + sets.index.to_numpy()[:, None] * n + np.arange(n)
        of_groups = {
            "set": np.repeat(sets.to_numpy(), n),
            "iteration": np.tile(np.array(level.iterations).astype(int), len(sets)),
            "group": group.ravel(),
        }
        parts.append(pd.DataFrame(of_groups))
    members = pd.concat(parts)
    shown = members[counts.is_shown[members["group"]]]
    donors = shown.drop_duplicates(["set", "iteration"])
    both = members.merge(donors, on=["set", "iteration"], suffixes=("", "_of_donor"))
    group, source = both["group"].to_numpy(), both["group_of_donor"].to_numpy()
    for column in (counts.table, counts.first_cell, counts.source):
        column[group] = column[source]
    counts.is_shown[group] = True


def _suppress_alone(counts: GroupCounts, level: Level, promise: Promise) -> None:
    place = {code: i for i, code in enumerate(level.iterations)}
    pairs = [
        (place[a], place[b])
        for a, b in (promise.counterparts or {}).items()
        if a in place and b in place
    ]
    if not pairs or not level.regions:
        return
    alone, combined = np.array(pairs).T
    shape = len(level.regions), len(level.iterations)
    groups = level.first + np.arange(level.n)
    # A view of the groups' own.
    is_shown = counts.is_shown[level.rows].reshape(shape)
    ends = promise.tabulation.n_cells[counts.table[groups]]
    totals = counts.sums(groups, np.zeros_like(groups), ends).reshape(shape)
    both = is_shown[:, alone] & is_shown[:, combined]
    is_shown[:, alone] &= ~(both & (totals[:, alone] > totals[:, combined]))
