"""Privacy accounting of a run, recomputed from its settings and public files, and compared with its
plan.

Nothing here uses the code that planned or measured. One person is in one region of a type and in at
most s groups of a level, s being its stability, and moves one count of each by one: so rho is s /
(2 sigma^2) and epsilon s / scale. In a level with budget b, groups that are measured by a total
only have all of b, the others gamma b in the first stage and (1 - gamma) b in the second. The
levels of a pass add up, and so do the tabulations of households. Nobody is in two passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..outcome import Failures
from ..plan import (
    GAUSSIAN,
    LAPLACE,
    Guarantee,
    Measure,
    Plan,
    check_plan,
    make_guarantee,
    make_measure,
)
from ..run_files import read_settings
from .measured import TOTALS, tables_by_totals
from .tables import PERSONS
from .universe import (
    CONFIG,
    GEOGRAPHY,
    INVARIANTS,
    LEVELS,
    PARAMETERS,
    REGION_TYPES,
    SPECIFICATION,
    Level,
    Promise,
    promises,
)

SHARDS = Path("spine") / "detailed_groups_shards.json"


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a file of another form.
    """
    check_plan_of(root, promises(root), failures)


def check_plan_of(root: Path, promised: Sequence[Promise], failures: Failures) -> None:
    """Like `check_privacy`, with the promises already computed."""
    settings, first = read_settings(root), promised[0]
    of_persons, infinite = first.tabulation is PERSONS, settings["privacy"]["infinite"]
    declared = settings["mechanism"].get("units_are_invariant", False)
    exact = ("groups and regions", *(("addresses",) if declared else ()))
    inputs = ["settings.toml", *map(str, (GEOGRAPHY, SHARDS))]
    files = [*SPECIFICATION, *([CONFIG] if (root / PARAMETERS / CONFIG).exists() else [])]
    inputs += [str(PARAMETERS / name) for name in files]
    inputs += [str(INVARIANTS)] if declared else []
    if not of_persons:
        exact = (*exact, "the earlier release")
        inputs.append(str(TOTALS))
    measures: list[Measure] = []
    counted = set()
    for promise in promised:
        cells = None if of_persons else _cells(root, promise)
        for level in promise.levels:
            n = None if cells is None else int(cells[level.rows].sum())
            if level.n if n is None else n:
                counted.add((level.region_type, level.level))
            measures += () if infinite else _measures(promise, level, n)
    every = ((kind, number) for kind in REGION_TYPES for number in LEVELS)
    wanted = Plan(
        "detailed-groups" if of_persons else "detailed-households",
        settings["privacy"]["dataset"],
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
    check_plan(root, wanted, settings, failures)


def _cells(root: Path, promise: Promise) -> np.ndarray:
    """How many counts of each group of households are measured, shape (n_groups,)."""
    return np.append(promise.tabulation.n_cells, 0)[tables_by_totals(root, promise)]


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
        yield make_measure(
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
    return make_guarantee(
        universe,
        "unbounded" if is_of_one else "unbounded_one_of_several",
        _total(promised, passes),
        is_pure=first.is_pure,
        bounded_factor=Fraction(2 if is_of_one else 4),
        mechanism=_mechanism(first),
    )


def _total(promised: Sequence[Promise], passes: Sequence[str] | None = None) -> Fraction:
    """The budgets of a pass add up, and of several passes the largest counts."""
    names = promised[0].passes if passes is None else passes
    return max(sum(own.total_of(name) for own in promised) for name in names) + Fraction(0)


def _mechanism(promise: Promise) -> str:
    return LAPLACE if promise.is_pure else GAUSSIAN
