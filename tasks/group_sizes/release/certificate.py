"""What the certificate of group sizes says: public content only, true of its plan."""

from __future__ import annotations

import math

from ...pages.document import Section, Table
from ...products.certificate import BLURRED, Exact, Facts
from ...products.statement import Statement
from ..settings import GroupSizesSettings
from ..workload.costs import noise_plan
from ..workload.exact_loss import curves_of
from ..workload.plan import Plan


def facts_of(settings: GroupSizesSettings, plan: Plan) -> Facts:
    """What was protected, against which change, with which noise, and what is exact."""
    noise = "without noise" if settings.privacy.infinite else "with random noise"
    return Facts(
        made=(
            f"by the mechanism {plan.mechanism.replace('_', ' ')}: at every level the numbers of "
            f"groups by size were measured {noise}, and counts were computed from those "
            "measurements, the number of groups and public geography"
        ),
        public=(
            f"{BLURRED} A group is a household or a facility, for example. Exact is only how many "
            "groups there are in all. How many have one size in a small region is mostly noise."
        ),
        statement=statement_of(settings, plan),
        exact=exact_of(plan),
        sections=(noise_section(plan),),
        curves=curves_of(plan) if settings.is_private else None,
    )


def statement_of(settings: GroupSizesSettings, plan: Plan) -> Statement:
    """The guarantee for one person, who joins, leaves or moves between groups."""
    if not settings.is_private:
        return Statement(settings.why_not_private, (), (), ())
    by = "" if plan.quantity == 1 else f", whose size changes by up to {plan.quantity:,}"
    if plan.bounded:
        change = f"one person moves from a group to another{by} in each"
    else:
        change = f"one person joins or leaves a group{by}"
    if plan.quantity == 1:
        change = change.removesuffix(" in each")
    alone = (
        "Empty groups are counted, so that a person who is a group alone is protected too."
        if plan.smallest_size == 0
        else "Groups neither appear nor vanish: that a group exists is not protected, so that of a "
        "person who is a group alone it is not protected that there is such a person."
    )
    return Statement(
        None,
        ("Protected is every person: of which size the person's group is.",),
        (f"The guarantee compares two tables that differ in this: {change}. {alone}",),
        (noise_plan(plan).stated,),
    )


def exact_of(plan: Plan) -> tuple[Exact, ...]:
    """The declared facts that the release rests on."""
    exact = [Exact("number of groups", f"there are {plan.groups:,} in all, released without noise")]
    if plan.exact_level is not None:
        what = f"how many there are in every {plan.exact_level}, released without noise"
        exact.append(Exact("numbers of groups by region", what))
    return (*exact, Exact("regions", "which regions there are"))


def noise_table(plan: Plan) -> Table:
    """Regions, share, sensitivity and noise of every level; those of levels measured as another
    are named in its row.
    """
    if plan.rho is None:
        headers = ("share of epsilon", "sensitivity", "scale")
    else:
        headers = ("share of rho", "squared sensitivity", "sigma^2")
    rows = []
    for level in plan.levels:
        if level.same_as is not None:
            continue
        same = "".join(f" = {o.level}" for o in plan.levels if o.same_as == level.level)
        noise = level.noise_of(plan.noise)
        parameter = None if noise is None else float(noise.parameter)
        own = zip(headers, (str(level.share), level.sensitivity, parameter), strict=True)
        deviation = None if noise is None else math.sqrt(noise.variance)
        row = {"level": level.level + same, "regions": level.n_regions, **dict(own)}
        rows.append({**row, "noise s.d.": deviation})
    return Table.of(rows)


def noise_section(plan: Plan) -> Section:
    """The noise of every level, in words and as a table."""
    noise = (
        "discrete Laplace noise of scale sensitivity / (epsilon share)"
        if plan.rho is None
        else "discrete Gaussian noise of variance squared sensitivity / (2 rho share)"
    )
    return Section(
        "Noise",
        (
            f"Every level was measured by the vector {plan.vector.replace('_', ' ')}, with {noise} "
            f"on every value. Sensitivities are {plan.calibration}.",
            noise_table(plan),
        ),
    )
