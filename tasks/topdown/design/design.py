"""The best split of a universe's budget: margins before and after, shares, and a certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import nlargest
from pathlib import Path
from typing import Any

import numpy as np

from ...census.queries import normalize_query_name
from ...pages.numbers import format_delta
from ...runs.errors import InputRefused
from ...runs.settings_files import dump_settings
from ...solvers.split import NORMAL_95, Design, certify_allocation, margin_of, optimum
from ..checks.replicate import with_estimator
from ..ingest.ingest import public_tables
from ..settings import TopdownSettings
from ..spine.build import PublicTables
from ..workload.budget import Budget
from ..workload.exact_loss import exact_epsilon, rho_under_guarantee
from .problem import PARTS, PRIOR, UniverseProblem, allocation_of, shares_of, to_fractions
from .settings import DesignSettings, UniverseDesign

EXACT = 1e-9
"""Mean variance, at a rho of 1, below which a target is known without noise."""
UNDETERMINED = 0.01 / PRIOR
"""Mean variance, at a rho of 1, from which nothing that is measured determines a target."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetDesign(Design):
    """The best budget of a universe.

    Under an exact guarantee its rho is the largest that the new split allows, and the certificate
    compares splits of that rho.
    """

    budget: Budget


def designs_of(settings: DesignSettings) -> dict[str, BudgetDesign]:
    """The best budget of every universe that has a section for it; see `design_universe`."""
    tables = public_tables(settings)
    return {universe: design_universe(settings, universe, tables) for universe in settings.design}


def design_universe(settings: DesignSettings, universe: str, tables: PublicTables) -> BudgetDesign:
    """The best budget of a universe for the section [design].

    `tables` come from `ingest.public_tables`. Under exact accounting rho is the one that the new
    split may have; settings are to be resolved. Raises InputRefused for targets without areas,
    known exactly or not determined, and for margins that need more than an exact guarantee allows.
    """
    design, before = settings.design[universe], settings.budget_of(universe)
    problem = UniverseProblem.of(settings.topdown, universe, design, tables)
    old = allocation_of(before.geolevel_shares, before.query_shares, problem.queries)
    now, _ = problem.variances(problem.measured.kinds.precision(old))
    program = problem.program(_scale(design, now, before, f"design.{universe}"))
    best = optimum(program, old, float(design.tolerance))
    fractions = to_fractions(_with_every_geolevel(best.allocation), PARTS)
    of_geolevel, of_query = shares_of(fractions, problem.geolevels, problem.queries)
    # Certify the fractions as written in the settings rather than the floats of the search.
    shares = allocation_of(of_geolevel, of_query, problem.queries)
    found = certify_allocation(program, shares, best.cuts, float(design.tolerance))
    then, _ = problem.variances(program.kinds.precision(shares))
    split = replace(before, geolevel_shares=of_geolevel, query_shares=of_query)
    allowed = settings.budget[universe].guarantee
    if design.objective == "smallest_rho":
        total = Fraction(math.ceil(float(found.values.max()) * PARTS), PARTS)
    elif allowed is not None:
        total = rho_under_guarantee(before, split, *allowed)
    else:
        total = before.total
    budget, needed = replace(split, total=total), float(before.total) * float((then / now).max())
    guarantee: dict[str, Any] | None = None
    notes = [f"The margins of now would need a rho of {needed:.4g} at these shares."]
    if allowed is not None:
        (epsilon, delta), exact = allowed, _exact_epsilon(budget, *allowed)
        guarantee = {"epsilon": str(epsilon), "delta": str(delta), "exact": exact}
        notes += [
            f"Guaranteed: the exact epsilon is {exact:.6g} at delta {format_delta(delta)}, of at "
            f"most {float(epsilon):g}."
        ]
    return BudgetDesign(
        title=universe,
        symbol="rho",
        objective=design.objective,
        before=before.total,
        total=total,
        targets=[
            {
                "name": name,
                "query": normalize_query_name(target.query),
                "where": target.level or Path(str(target.areas)).name,
                "n_areas": problem.n_areas[place],
                "wanted": None if target.margin is None else float(target.margin),
                "now": margin_of(now[place], before.total),
                "designed": margin_of(then[place], total),
            }
            for place, (name, target) in enumerate(design.targets.items())
        ],
        headers=("target", "query", "level or areas", "areas", "wanted", "now", "designed"),
        levels=[
            {
                "geolevel": name,
                "share now": f"{float(before.geolevel_shares[name]):.2%}",
                "designed": f"{float(share):.2%}",
                "largest queries": ", ".join(
                    f"{query} {float(part):.0%}"
                    for query, part in nlargest(3, of_query[name].items(), lambda own: own[1])
                ),
            }
            for name, share in of_geolevel.items()
        ],
        margins="root mean square, of best linear unbiased estimates from all noisy answers; "
        "releases have no negative counts, and differ.",
        gap=1.0 - found.bound / float(found.values.max()),
        notes=tuple(notes),
        compared="this budget" if allowed is None else "the same rho",
        further={
            "rho_for_the_margins_now": needed,
            "guarantee": guarantee,
            "geolevels": {name: str(share) for name, share in of_geolevel.items()},
            "queries": {
                geolevel: {name: str(share) for name, share in shares.items()}
                for geolevel, shares in of_query.items()
            },
        },
        budget=budget,
    )


def _exact_epsilon(budget: Budget, epsilon: Fraction, delta: Fraction) -> float:
    """The exact epsilon of a designed budget; raises InputRefused where more than is allowed."""
    exact = exact_epsilon(budget, delta)
    if exact is None or Fraction(exact) > epsilon:
        raise InputRefused(
            f"design.{budget.universe}: the wanted margins need rho {float(budget.total):.6g}, "
            f"with an exact epsilon of {exact} at delta {format_delta(delta)}, where "
            f"{float(epsilon):g} is allowed; widen margins, or raise "
            f"budget.{budget.universe}.epsilon."
        )
    return exact


def designed_settings(
    settings: DesignSettings, designs: Mapping[str, BudgetDesign]
) -> TopdownSettings:
    """The settings with the designed budgets, for the estimator that they are designed for; they
    do not depend on a preset."""
    made = with_estimator(settings.topdown, "full_information")
    for universe, design in designs.items():
        found, allowed = design.budget, settings.budget[universe].guarantee
        made = made.with_budget(
            universe,
            rho=found.total,
            # An epsilon under exact accounting stays, and limits the run.
            epsilon=None if allowed is None else allowed[0],
            accounting=None if allowed is None else "exact",
            geolevels=dict(found.geolevel_shares),
            queries={name: dict(shares) for name, shares in found.query_shares.items()},
        )
    return made.model_copy(update={"preset": None})


def compared_splits(
    settings: DesignSettings, designs: Mapping[str, BudgetDesign]
) -> dict[str, TopdownSettings]:
    """Settings under the settings' own split, the designed one, and one that gives all geolevels,
    and all queries of a geolevel, the same share.

    Rho is the design's, or the one that keeps the design's exact guarantee with another split.
    """
    designed = designed_settings(settings, designs)
    own = even = designed
    for universe in designed.budget:
        before = settings.budget_of(universe)
        queries = {name: dict(shares) for name, shares in before.query_shares.items()}
        own = own.with_budget(universe, geolevels=dict(before.geolevel_shares), queries=queries)
        same = dict.fromkeys(queries, Fraction(1, len(queries)))
        of_each = dict.fromkeys(before.queries, Fraction(1, len(before.queries)))
        evenly = dict.fromkeys(queries, of_each)
        even = even.with_budget(universe, geolevels=same, queries=evenly)
    for universe in designed.run.universes:
        own, even = (designed.apply_guarantee(split, universe) for split in (own, even))
    return {"own": own, "designed": designed, "even": even}


def settings_text(settings: DesignSettings, designs: Mapping[str, BudgetDesign]) -> str:
    """The designed settings as TOML, preceded by comments with their certificates."""
    lines = [f"# Budget of {name}: {design.certificate}." for name, design in designs.items()]
    return "\n".join([*lines, dump_settings(designed_settings(settings, designs))])


def _scale(design: UniverseDesign, now: np.ndarray, budget: Budget, where: str) -> np.ndarray:
    """(criteria, targets) factors from the mean variances `now` (targets,) at a rho of
    1 to the criteria; ratios compare margins at a rho of 1 with the wanted ones."""
    wanted = []
    for (name, target), variance in zip(design.targets.items(), now.tolist(), strict=True):
        if variance < EXACT:
            raise InputRefused(
                f"{where}.targets.{name} is known exactly, whatever is measured; take it out."
            )
        if target.margin is not None:
            wanted.append((float(target.margin) / NORMAL_95) ** 2)
            continue
        if variance > UNDETERMINED and design.objective != "weighted_sum":
            raise InputRefused(
                f"{where}.targets.{name} has no margin, and the allocation of the settings does "
                "not determine its answers; give a margin."
            )
        wanted.append(variance / float(budget.total))
    if design.objective == "weighted_sum":
        return np.array([[float(target.weight) for target in design.targets.values()]])
    return np.diag(1.0 / np.array(wanted))


def _with_every_geolevel(p: np.ndarray) -> np.ndarray:
    """The allocation with at least one part for every geolevel, since a spine has no geolevel
    without a share."""
    found = p.copy()
    for row in found:
        if row.max() * PARTS < 1:
            row[row.argmax()] = 1 / PARTS
    return found / found.sum()
