"""The plan of a run: everything public that decides what is measured and how it is estimated.

It is written once, before anything is drawn, so that a later version of the code that would choose
otherwise still reads the measurements for what they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from spineflow.tasks.group_sizes.workload.mechanisms import (
    PUBLISHED,
    VECTOR_OF,
    default_mechanism,
    level_weights,
    noise_scale,
    published_sensitivity,
    sensitivity,
)

LARGEST_NOISE_IN_SCALES = 64
"""A draw beyond this many scales has a probability below 1e-27."""
LARGEST_SUM = 1 << 59


class ImpossiblePlan(ValueError):
    """Noise of such a scale would leave 64-bit integers."""


@dataclass(frozen=True)
class LevelPlan:
    """What one level is measured with: `scale` of the discrete Laplace noise, None without."""

    level: str
    n_regions: int
    share: Fraction
    sensitivity: int
    scale: Fraction | None
    weight: int


@dataclass(frozen=True)
class Plan:
    """The plan of a run; `groups` is the public total, sizes run from smallest to largest."""

    mechanism: str
    calibration: str
    bounded: bool
    quantity: int
    epsilon: Fraction | None
    smallest_size: int
    largest_size: int
    groups: int
    levels: tuple[LevelPlan, ...]

    @property
    def vector(self) -> str:
        """The vector that is measured at every level."""
        return VECTOR_OF[self.mechanism]

    @property
    def n_sizes(self) -> int:
        """Number of sizes."""
        return self.largest_size - self.smallest_size + 1

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight of each level's squared distances."""
        return tuple(level.weight for level in self.levels)

    def to_json(self) -> str:
        """The plan as JSON, fractions as strings."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        plan = json.loads(text)
        levels = tuple(
            LevelPlan(
                **level
                | {"share": Fraction(level["share"]), "scale": _fraction_or_none(level["scale"])}
            )
            for level in plan["levels"]
        )
        return cls(**plan | {"epsilon": _fraction_or_none(plan["epsilon"]), "levels": levels})


def make_plan(
    *,
    names: Sequence[str],
    n_regions: Sequence[int],
    sizes: tuple[int, int],
    groups: int,
    epsilon: Fraction | None,
    shares: Sequence[Fraction] | None = None,
    mechanism: str | None = None,
    calibration: str = "proven",
    bounded: bool = False,
    quantity: int = 1,
) -> Plan:
    """Choose the mechanism if none is named, and calibrate every level.

    Args:
        names, n_regions: the levels, root first.
        sizes: the smallest and the largest size.
        groups: the public total.
        epsilon: None switches noise off.
        shares: of epsilon, for each level; by default equal.

    Raises ImpossiblePlan if sums of noisy counts could leave 64 bits.
    """
    shares = shares or [Fraction(1, len(names))] * len(names)
    mechanism = mechanism or default_mechanism(n_regions, quantity=quantity)
    vector = VECTOR_OF[mechanism]
    if calibration == PUBLISHED:
        sensitivities = [published_sensitivity(vector)] * len(names)
    else:
        sensitivities = [
            sensitivity(vector, n, bounded=bounded, quantity=quantity) for n in n_regions
        ]
    # Without noise all levels count alike, as they do with any noise.
    scales = [
        noise_scale(value, epsilon or Fraction(1), share)
        for value, share in zip(sensitivities, shares, strict=True)
    ]
    weights = level_weights(scales)
    plan = Plan(
        mechanism,
        calibration,
        bounded,
        quantity,
        epsilon,
        *sizes,
        groups,
        tuple(
            LevelPlan(name, n, share, value, None if epsilon is None else scale, weight)
            for name, n, share, value, scale, weight in zip(
                names, n_regions, shares, sensitivities, scales, weights, strict=True
            )
        ),
    )
    largest = groups + LARGEST_NOISE_IN_SCALES * max(scales)
    n_values = sum(level.n_regions * level.weight for level in plan.levels) * plan.n_sizes
    if largest * max(n_values, 16 * sum(weights)) >= LARGEST_SUM:
        raise ImpossiblePlan
    return plan


def _fraction_or_none(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)
