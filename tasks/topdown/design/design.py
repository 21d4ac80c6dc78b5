"""The best split of a universe's budget: margins before and after, shares, and a certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from ...census.queries import normalize_query_name
from ...pages.document import Section, Table
from ...pages.numbers import format_delta
from ...runs.errors import InputRefused
from ...runs.settings_files import dump_settings
from ...solvers.level_design import NORMAL_95
from ..checks.replicate import with_estimator
from ..ingest.ingest import public_tables
from ..settings import TopdownSettings
from ..spine.build import PublicTables
from ..workload.budget import Budget
from ..workload.exact_loss import exact_epsilon, rho_under_guarantee
from .allocation import PRIOR, allocation_of, shares_of, to_fractions
from .problem import PARTS, UniverseProblem
from .program import certify_allocation, optimum
from .settings import DesignSettings, UniverseDesign

EXACT = 1e-9
"""Mean variance, at a rho of 1, below which a target is known without noise."""
UNDETERMINED = 0.01 / PRIOR
"""Mean variance, at a rho of 1, from which nothing that is measured determines a target."""


@dataclass(frozen=True)
class TargetMargins:
    """A target's answers, and the root mean square of their 95 % margins.

    wanted : None in a weighted sum. now, designed : under the settings' allocation, and the new.
    """

    name: str
    query: str
    where: str
    n_areas: int
    wanted: float | None
    now: float
    designed: float


@dataclass(frozen=True)
class ExactGuarantee:
    """Exact guarantee of a designed budget: `epsilon` at `delta` was allowed, and
    `exact` is an upper bound for the noise of the design.
    """

    epsilon: Fraction
    delta: Fraction
    exact: float

    @property
    def in_words(self) -> str:
        """The guarantee as a clause."""
        return (
            f"the exact epsilon is {self.exact:.6g} at delta {format_delta(self.delta)}, of at "
            f"most {float(self.epsilon):g}"
        )

    def to_json(self) -> dict[str, object]:
        """The guarantee as JSON values; fractions as strings."""
        return {"epsilon": str(self.epsilon), "delta": str(self.delta), "exact": self.exact}


@dataclass(frozen=True, eq=False)
class Design:
    """The best budget of a universe.

    guarantee : the exact guarantee; None where rho alone is given. Its rho is then
        the largest that the new split allows, and the certificate compares splits of that rho.
    gap : upper bound of the share by which another allocation's objective, in terms of
        variances, may be smaller.
    rho_for_now : the rho at which the new allocation gives every target the margin it has now.
    """

    universe: str
    objective: str
    before: Budget
    budget: Budget
    targets: tuple[TargetMargins, ...]
    gap: float
    rho_for_now: float
    guarantee: ExactGuarantee | None = None

    @property
    def certificate(self) -> str:
        """The certified optimality of the design, as a clause."""
        budget = "this budget" if self.guarantee is None else "the same rho"
        if self.objective == "weighted_sum":
            return (
                f"no other split of {budget} has a weighted sum of variances that is smaller "
                f"by more than {_percent(self.gap)}"
            )
        if self.objective == "smallest_rho":
            return (
                f"no rho that is smaller by more than {_percent(self.gap)} meets all wanted "
                "margins, however it is split"
            )
        # Margins are roots of variances.
        return (
            f"no other split of {budget} has a largest ratio to the wanted margins that is "
            f"smaller by more than {_percent(1 - math.sqrt(1 - self.gap))}"
        )

    @property
    def section(self) -> Section:
        """Margins of every target before and after, shares of the geolevels, the certificate."""
        headers = ("target", "query", "level or areas", "areas", "wanted", "now", "designed")
        targets = [dict(zip(headers, vars(own).values(), strict=True)) for own in self.targets]
        shares = []
        for name, share in self.budget.geolevel_shares.items():
            queries = sorted(self.budget.query_shares[name].items(), key=lambda item: -item[1])
            before = float(self.before.geolevel_shares[name])
            row = {
                "geolevel": name,
                "share now": f"{before:.2%}",
                "designed": f"{float(share):.2%}",
            }
            row["largest queries"] = ", ".join(f"{q} {float(part):.0%}" for q, part in queries[:3])
            shares.append(row)
        guaranteed = () if self.guarantee is None else (f"Guaranteed: {self.guarantee.in_words}.",)
        return Section(
            self.universe,
            (
                f"rho {float(self.before.total):.4g}, designed {float(self.budget.total):.4g}",
                Table.of(targets),
                Table.of(shares),
                "Margins of 95 %, root mean square, of best linear unbiased estimates from all "
                "noisy answers; releases have no negative counts, and differ.",
                f"Certain: {self.certificate}.",
                *guaranteed,
                f"The margins of now would need a rho of {self.rho_for_now:.4g} at these shares.",
            ),
        )

    def to_json(self) -> dict[str, object]:
        """The design as JSON values; fractions as strings."""
        return {
            "objective": self.objective,
            "rho": {"now": str(self.before.total), "designed": str(self.budget.total)},
            "rho_for_the_margins_now": self.rho_for_now,
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "gap": self.gap,
            "certificate": self.certificate,
            "targets": [vars(target) for target in self.targets],
            "geolevels": {name: str(s) for name, s in self.budget.geolevel_shares.items()},
            "queries": {
                geolevel: {name: str(share) for name, share in shares.items()}
                for geolevel, shares in self.budget.query_shares.items()
            },
        }


def designs_of(settings: DesignSettings) -> dict[str, Design]:
    """The best budget of every universe that has a section for it; see `design_universe`."""
    tables = public_tables(settings)
    return {universe: design_universe(settings, universe, tables) for universe in settings.design}


def design_universe(settings: DesignSettings, universe: str, tables: PublicTables) -> Design:
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
    margins = (
        TargetMargins(
            name,
            normalize_query_name(target.query),
            target.level or Path(str(target.areas)).name,
            problem.n_areas[place],
            None if target.margin is None else float(target.margin),
            margin_of(now[place], before.total),
            margin_of(then[place], total),
        )
        for place, (name, target) in enumerate(design.targets.items())
    )
    return Design(
        universe,
        design.objective,
        before,
        replace(split, total=total),
        tuple(margins),
        1.0 - found.bound / float(found.values.max()),
        float(before.total) * float((then / now).max()),
        None if allowed is None else _exact_guarantee(replace(split, total=total), *allowed),
    )


def _exact_guarantee(budget: Budget, epsilon: Fraction, delta: Fraction) -> ExactGuarantee:
    """The exact guarantee of a designed budget; raises InputRefused where it is not met."""
    exact = exact_epsilon(budget, delta)
    if exact is None or Fraction(exact) > epsilon:
        raise InputRefused(
            f"design.{budget.universe}: the wanted margins need rho {float(budget.total):.6g}, "
            f"with an exact epsilon of {exact} at delta {format_delta(delta)}, where "
            f"{float(epsilon):g} is allowed; widen margins, or raise "
            f"budget.{budget.universe}.epsilon."
        )
    return ExactGuarantee(epsilon, delta, exact)


def designed_settings(settings: DesignSettings, designs: Mapping[str, Design]) -> TopdownSettings:
    """The settings with the designed budgets, for the estimator that they are designed for; they
    do not depend on a preset."""
    made = with_estimator(settings.topdown, "full_information")
    for universe, design in designs.items():
        found, held = design.budget, design.guarantee
        made = made.with_budget(
            universe,
            rho=found.total,
            # An epsilon under exact accounting stays, and limits the run.
            epsilon=None if held is None else held.epsilon,
            accounting=None if held is None else "exact",
            geolevels=dict(found.geolevel_shares),
            queries={name: dict(shares) for name, shares in found.query_shares.items()},
        )
    return made.model_copy(update={"preset": None})


def compared_splits(
    settings: DesignSettings, designs: Mapping[str, Design]
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
        own, even = (designed.guaranteeing(split, universe) for split in (own, even))
    return {"own": own, "designed": designed, "even": even}


def settings_text(settings: DesignSettings, designs: Mapping[str, Design]) -> str:
    """The designed settings as TOML, preceded by comments with their certificates."""
    lines = [f"# Budget of {name}: {design.certificate}." for name, design in designs.items()]
    return "\n".join([*lines, dump_settings(designed_settings(settings, designs))])


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.2g} %"


def margin_of(variance: float, rho: Fraction | float) -> float:
    """The 95 % margin at a rho, or at any precision, from the variance at 1."""
    return NORMAL_95 * math.sqrt(max(float(variance), 0.0) / float(rho))


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
