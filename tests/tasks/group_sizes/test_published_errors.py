"""Which errors of table 7 in [GroupSizes2021] its data and its noise can have."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.group_sizes.estimation.estimate import estimate_plan
from spineflow.tasks.group_sizes.ingest.generate import census_like
from spineflow.tasks.group_sizes.ingest.regions import hierarchy_of_rows
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import PROVEN, PUBLISHED, Plan
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.products.measurement import with_noise
from spineflow.tasks.tables.value_tallies import ValueTally

from tests.tasks.group_sizes.plans import make_plan

COUNTIES = 3144
AT_COUNTIES = {"hierarchical_dp": 128_800, "cumulative_dp": 91_000, "topdown": 127_200}
"""Errors of the census rows at epsilon 1, as printed."""
TAXIS = 13_282
AT_ZONES = (915_700, 644_300, 537_800, 809_100)
"""Errors of the taxi rows at epsilon 0.1, of the mechanisms whose sums hold."""


def plan_of(mechanism: str, calibration: str, groups: int, largest: int, regions: tuple) -> Plan:
    return make_plan(
        names=("nation", "state", "county"),
        n_regions=regions,
        sizes=(1, largest),
        groups=groups,
        epsilon=Fraction(1),
        mechanism=mechanism,
        calibration=calibration,
    )


def test_errors_at_the_zones_are_larger_than_any_two_releases_of_so_many_groups_differ() -> None:
    """Sums that hold give every level as many groups; one in a wrong size counts twice."""
    assert min(AT_ZONES) > 20 * 2 * TAXIS


def test_errors_at_the_counties_are_smaller_than_the_noise_of_the_sizes_that_were_published() -> (
    None
):
    """Seven sizes of Summary File 1 at a scale of 2 L / epsilon, or L / epsilon if cumulative."""
    random = SeededRandom(1)
    size = (COUNTIES, 7)
    for mechanism, published in AT_COUNTIES.items():
        plan = plan_of(mechanism, PROVEN, 117_630_445, 1000, (1, 52, COUNTIES))
        county = plan.levels[-1]
        assert county.noise.parameter == (3 if mechanism == "cumulative_dp" else 6)
        noise = UnchargedNoise(random).draw("county", county.noise, size[0] * size[1])
        counts = noise.reshape(size)
        if mechanism == "cumulative_dp":
            counts = np.diff(counts, axis=1, prepend=0)
        assert np.abs(counts).sum() > published


@pytest.mark.parametrize(
    ("mechanism", "calibration"),
    [("hierarchical_dp", PROVEN), ("cumulative_dp", PROVEN), ("chain_dp", PUBLISHED)],
)
def test_no_level_of_a_release_is_further_off_than_twice_its_groups(
    mechanism: str, calibration: str
) -> None:
    """The bound above is one of our own releases, however large the noise is."""
    data = census_like(groups=300, counties=30, states=3, largest=200)
    hierarchy = hierarchy_of_rows(data.regions, ValueTally())
    finest = {region: i for i, region in enumerate(hierarchy.levels[-1].codes)}
    counts = np.zeros((30, 200), dtype=np.int64)
    counts[data.sizes["region"].map(finest), data.sizes["size"] - 1] = data.sizes["count"]
    truth = hierarchy.sum_up(counts)
    plan = plan_of(mechanism, calibration, 300, 200, (1, 3, 30))
    draws = UnchargedNoise(SeededRandom(2))
    noisy = [
        with_noise(true_vector(plan.vector, own), level.noise, draws)
        for level, own in zip(plan.levels, truth, strict=True)
    ]
    errors = [
        int(np.abs(estimate - true).sum())
        for estimate, true in zip(estimate_plan(plan, hierarchy, noisy), truth, strict=True)
    ]
    assert max(errors) <= 600
    # The noise is no smaller than the counts: a good part of what can be wrong is.
    assert errors[-1] > 600 / 4
