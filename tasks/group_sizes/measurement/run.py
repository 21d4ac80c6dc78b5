"""Charging and measuring a group-sizes run, level by level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from spineflow.tasks.group_sizes.checks.promise import promise_of
from spineflow.tasks.group_sizes.ingest.run_files import (
    UNIVERSE,
    measurement_file,
    read_plan,
    read_regions,
    true_counts,
)
from spineflow.tasks.group_sizes.measurement.vectors import noisy_vector
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload.mechanisms import NOISE, PROVEN
from spineflow.tasks.group_sizes.workload.plan import Plan
from spineflow.tasks.ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, Guarantee
from spineflow.tasks.ledger.charging import charge_draws, random_source, single_draw
from spineflow.tasks.ledger.identity import stored_digests
from spineflow.tasks.ledger.ledger import Draw
from spineflow.tasks.noise.sampler import noise_variance
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.validation.group_sizes.privacy_loss import check_plan
from spineflow.validation.outcome import Failures
from spineflow.validation.run_files import UnusableRunFile


def measurement_files(run: RunDirectory, plan: Plan) -> list[Path]:
    """The files of noisy measurements that the run publishes, there yet or not."""
    return [measurement_file(run, level.level) for level in plan.levels]


def guarantees(plan: Plan) -> bool:
    """Whether a plan's noise is known to protect anybody."""
    return plan.epsilon is not None and plan.calibration == PROVEN


def guarantee_of(plan: Plan) -> Guarantee:
    """What measuring all levels guarantees: epsilon of pure differential privacy.

    The levels' parts of epsilon add up. The scales are calibrated to the neighbours of the plan:
    bounded, where a person moves between groups, or unbounded, where one joins or leaves a group.
    Raises ValueError for a plan that guarantees nothing: without noise, or of the published scale.
    """
    if not guarantees(plan):
        raise ValueError("a plan without noise, or of the published scale, guarantees nothing")
    return Guarantee(PURE_DP, plan.epsilon, BOUNDED if plan.bounded else UNBOUNDED)


def charge_run(run: RunDirectory, settings: GroupSizesSettings) -> None:
    """Check that what will be measured costs what the settings say, then enter it in the ledger.

    Shares and sensitivities are recomputed from the stored plan by independent code. Raises
    BudgetRefused before any noise is drawn.
    """
    failures = Failures()
    try:
        check_plan(run.root, promise_of(settings), failures)
    except UnusableRunFile as error:
        failures.add(str(error))
    if failures.count:
        raise BudgetRefused(f"{failures.texts[0]}; start a new run, since nothing was drawn.")
    if settings.is_private:
        plan = read_plan(run)
        charge_draws(
            run,
            settings,
            draws=[Draw(UNIVERSE, NOISE, guarantee_of(plan))],
            inputs=stored_digests(run),
            files=measurement_files(run, plan),
        )


def measure_level(run: RunDirectory, settings: GroupSizesSettings, level_name: str) -> None:
    """Measure and publish one level; raises BudgetRefused if that was done before."""
    plan, hierarchy = read_plan(run), read_regions(run)
    depth = hierarchy.names.index(level_name)
    level, regions = plan.levels[depth], hierarchy.levels[depth].region
    counts = true_counts(run, hierarchy, plan)[depth]
    path = measurement_file(run, level_name)
    plb, variance = "inf", 0.0
    if level.scale is not None:
        plb, variance = str(plan.epsilon * level.share), noise_variance(NOISE, level.scale)
    with single_draw(run, settings, path):

        def draw():
            source = random_source(settings, UNIVERSE, level_name)
            yield [
                NoisyAnswers(
                    plan.vector + DPQUERY_SUFFIX,
                    regions,
                    noisy_vector(plan.vector, counts, level.scale, source),
                    np.full(len(regions), variance),
                    np.full(len(regions), plb, dtype=object),
                )
            ]

        write_measurements(path, draw(), is_private=settings.is_private)


def cost_report(plan: Plan) -> dict[str, Any]:
    """What `spineflow budget --json` prints; fractions as strings.

    `rho` is the bounded zCDP figure that epsilon implies, infinite for a plan that guarantees
    nothing, and `neighbors` says what epsilon is for. Attributes and places within a region are not
    protected by parts of it: a person's group is counted at every level.
    """
    infinite = plan.epsilon is None
    epsilon = "inf" if infinite else float(plan.epsilon)
    return {
        "mechanism": plan.mechanism,
        "vector": plan.vector,
        "noise": NOISE,
        "calibration": plan.calibration,
        "neighbors": BOUNDED if plan.bounded else UNBOUNDED,
        "rho": str(guarantee_of(plan).bounded_rho) if guarantees(plan) else "inf",
        "delta": None,
        "epsilon": {"tight": epsilon, "simple": epsilon},
        "attributes": {},
        "block_within": {},
        "queries": [
            {
                "geolevel": level.level,
                "query": plan.vector,
                "regions": level.n_regions,
                "share": str(level.share),
                "sensitivity": level.sensitivity,
                "sigma_squared": None,
                "scale": None if level.scale is None else str(level.scale),
            }
            for level in plan.levels
        ],
    }
