"""Exact guarantee of a run's noise, by universe: computed once, in parallel with the estimates.

It follows from the settings and the paths of the spine alone, takes seconds for every universe, and
both the certificate and the report show it: a task of each universe computes it and stores the
unrounded numbers in `losses/<universe>.json`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ....geography.levels import Spine
from ...products.budget import ExactEpsilons
from ...products.privacy_curves import CurvePoints, TradeOff, curve_points, trade_off
from ...runs.directory import RunDirectory
from ...runs.files import write_text
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..workload.costs import reported_delta, universe_plan
from ..workload.exact_loss import exact_curve, exact_epsilon, exact_parts, paths_of


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
