"""The universe of the checks is that of the run; each side is worked out on its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.checks.expected import expected_run, levels_to_be_measured
from spineflow.tasks.detailed_groups.ingest.ingest import (
    run_parameters,
    run_regions,
    run_specification,
    run_universe,
)
from spineflow.tasks.detailed_groups.postprocess.coterminous import coterminous_sets
from spineflow.tasks.detailed_groups.release.budget import level_budgets
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.noise.mechanisms import noise_variance as exact_variance
from spineflow.tasks.noise.quantiles import inverse_cdf
from spineflow.validation.detailed_groups.privacy_loss import noise_variance
from spineflow.validation.detailed_groups.run_checks import float_threshold
from spineflow.validation.detailed_groups.universe import identical_regions


def test_universe_of_a_run(measured_groups) -> None:
    run, run_settings = measured_groups()
    expected = expected_run(run, run_settings)
    assert {level.region_type for level in expected.levels} > {"USA", "PR-STATE", "AIANNH"}
    for level in expected.levels:
        universe = run_universe(run, level.region_type, level.level)
        assert list(level.iterations) == universe.codes.tolist()
        assert level.total_only.tolist() == universe.total_only.tolist()
        assert list(level.regions) == run_regions(run, level.region_type).ids.tolist()
        budget = run_settings_budget(run, run_settings, level)
        assert (level.budget, level.stability) == (budget.budget, budget.stability)
    assert expected.n_groups == sum(level.n for level in expected.levels)


def run_settings_budget(run, run_settings, level):
    parameters = run_parameters(run, run_settings)
    region_pass = "pr" if level.region_type.startswith("PR-") else "us"
    budgets = level_budgets(parameters, run_specification(run), region_pass)
    return budgets[level.region_type, level.level]


@pytest.mark.slow
def test_production_specification(shared) -> None:
    folder = str(shared / "data" / "safetab" / "spec_2020")
    parameters, specification = read_parameters(folder, {}), read_specification(folder)
    levels = levels_to_be_measured(parameters, specification, _blocks(("44", "25", "72")))
    sizes = {(level.region_type, level.level): len(level.iterations) for level in levels}
    assert sizes["STATE", 1] + sizes["STATE", 2] == 2996
    assert (sizes["TRACT", 1], sizes["TRACT", 2]) == (48, 2150)
    assert ("AIANNH", 1) not in sizes
    assert {level.stability for level in levels} == {9}


def _blocks(states):
    return pd.DataFrame(
        {
            "TABBLKST": states,
            "TABBLKCOU": "001",
            "TABTRACTCE": "000100",
            "PLACEFP": "99999",
            "AIANNHCE": "0010",
        }
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            *(st.lists(st.sampled_from([None, "a", "b"]), min_size=n, max_size=n) for _ in "xyz"),
            st.one_of(st.none(), st.lists(st.booleans(), min_size=n, max_size=n)),
        )
    )
)
def test_identical_regions_are_the_coterminous_sets(drawn) -> None:
    *columns, inhabitable = drawn
    regions = dict(zip(("COUNTY", "PLACE", "AIANNH"), columns, strict=True))
    mask = None if inhabitable is None else np.array(inhabitable)
    one, other = identical_regions(regions, inhabitable), coterminous_sets(regions, mask).number
    pairs: dict[tuple, set] = {}
    for region_type in regions:
        assert set(one[region_type]) == set(other[region_type])
        for region, number in one[region_type].items():
            pairs.setdefault(("one", number), set()).add((region_type, region))
            pairs.setdefault(("other", other[region_type][region]), set()).add(
                (region_type, region)
            )
    by_one = {frozenset(members) for key, members in pairs.items() if key[0] == "one"}
    by_other = {frozenset(members) for key, members in pairs.items() if key[0] == "other"}
    assert by_one == by_other


@pytest.mark.slow
@pytest.mark.parametrize("is_pure", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    st.fractions(min_value="1/500", max_value=5, max_denominator=500),
    st.integers(1, 12),
    st.sampled_from(["0.9999", "0.99", "0.5", "0.3", "0.01"]),
)
def test_threshold_and_variance_agree_with_the_exact_ones(is_pure, loss, stability, chance) -> None:
    noise = IntegerDistribution(loss / stability, power=1 if is_pure else 2)
    chance = Fraction(chance)
    assert float_threshold(loss, stability, chance, is_pure=is_pure) == inverse_cdf(noise, chance)
    mechanism = DISCRETE_LAPLACE if is_pure else DISCRETE_GAUSSIAN
    parameter = 1 / (noise.power * noise.c)
    assert noise_variance(loss, stability, is_pure=is_pure) == pytest.approx(
        exact_variance(mechanism, parameter), rel=1e-11
    )
