"""The checks' arithmetic against that of the run, and against brute force."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.ingest.ingest import run_regions, run_universe
from spineflow.tasks.detailed_groups.postprocess import coterminous_sets
from spineflow.tasks.detailed_groups.workload.specification import Specification, alone_counterparts
from spineflow.tasks.noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    IntegerDistribution,
)
from spineflow.tasks.noise.distributions import noise_variance as exact_variance
from spineflow.tasks.noise.quantiles import inverse_cdf, margin_of_sum
from spineflow.validation.detailed_groups.group_counts import margins_of_sum, threshold_of
from spineflow.validation.detailed_groups.tables import PERSONS, TENURES, TYPES
from spineflow.validation.detailed_groups.universe import (
    GEOGRAPHY,
    CountNoise,
    Iteration,
    counterparts,
    identical_regions,
    promises,
    region_of_blocks,
    stability,
)

from tests.tasks.detailed_groups.workload.test_mapping import brute_force, everybody, specifications


def iterations_of(specification: Specification) -> dict[str, Iteration]:
    return {
        code: Iteration(own.level, own.is_alone, own.detailed_only, own.coarse_only)
        for code, own in specification.iterations.items()
    }


def test_universe_of_a_run(persons) -> None:
    (promise,) = promises(persons.root)
    assert {level.region_type for level in promise.levels} > {"USA", "PR-STATE", "AIANNH"}
    for level in promise.levels:
        universe = run_universe(persons, level.region_type, level.level)
        assert list(level.iterations) == universe.codes.tolist()
        assert level.total_only.tolist() == universe.total_only.tolist()
        assert list(level.regions) == run_regions(persons, level.region_type).ids.tolist()
    assert any(promise.coterminous.values())
    assert promise.counterparts


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(specifications(), st.integers(1, 4))
def test_nobody_is_in_more_groups_than_the_stability(specification, most: int) -> None:
    people = everybody(specification, most)
    in_groups = max(len(brute_force(specification, *person)) for person in people)
    assert in_groups <= stability(specification.pairs, iterations_of(specification), most)


@settings(max_examples=30, deadline=None)
@given(specifications())
def test_counterparts_are_those_of_the_run(specification) -> None:
    found = counterparts(iterations_of(specification), specification.pairs)
    assert found == alone_counterparts(specification)


@pytest.mark.slow
def test_production_specification(shared, tmp_path: Path) -> None:
    shutil.copytree(shared / "data" / "safetab" / "spec_2020", tmp_path / "parameters")
    (tmp_path / "settings.toml").write_text(
        "[input]\n[mechanism]\n[privacy]\ninfinite = false\n", encoding="utf-8"
    )
    (tmp_path / "spine").mkdir()
    areas = ("44", "001", "000100", "99999", "0010"), ("72", "001", "000100", "99999", "0010")
    pq.write_table(blocks_of(areas), tmp_path / GEOGRAPHY)
    (promise,) = promises(tmp_path)
    sizes = {(own.region_type, own.level): len(own.iterations) for own in promise.levels}
    assert sizes["STATE", 1] + sizes["STATE", 2] == 2996
    assert (sizes["TRACT", 1], sizes["TRACT", 2]) == (48, 2150)
    assert ("AIANNH", 1) not in sizes
    assert {level.stability for level in promise.levels} == {9}


def blocks_of(rows) -> pa.Table:
    names = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "PLACEFP", "AIANNHCE")
    return pa.table([list(column) for column in zip(*rows, strict=True)], names=names)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            *(st.lists(st.sampled_from([None, "a", "b"]), min_size=n, max_size=n) for _ in "xyz"),
            st.one_of(st.none(), st.lists(st.booleans(), min_size=n, max_size=n)),
        )
    )
)
def test_identical_regions_are_the_coterminous_sets(drawn) -> None:
    *columns, used = drawn
    regions = dict(zip(("COUNTY", "PLACE", "AIANNH"), columns, strict=True))
    mask = None if used is None else np.array(used)
    blocks = {name: pd.Series(own, dtype=object) for name, own in regions.items()}
    sides = identical_regions(blocks, mask), coterminous_sets(regions, mask)
    members = []
    for numbers in sides:
        sets: dict[int, set] = {}
        for region_type, of_regions in numbers.items():
            for region, number in of_regions.items():
                sets.setdefault(number, set()).add((region_type, region))
        members.append({frozenset(own) for own in sets.values()})
    assert members[0] == members[1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2]),
    st.fractions(min_value="1/500", max_value=2, max_denominator=500),
    st.sampled_from(["0.9999", "0.99", "0.5", "0.3", "0.01"]),
    st.sampled_from([1, 2, 5, 46]),
)
def test_noise_agrees_with_the_exact_one(power: int, rate, chance: str, n: int) -> None:
    exact, noise = IntegerDistribution(rate, power), CountNoise(rate, power)
    assert threshold_of(noise, Fraction(chance)) == inverse_cdf(exact, Fraction(chance))
    mechanism = DISCRETE_LAPLACE if power == 1 else DISCRETE_GAUSSIAN
    variance = exact_variance(mechanism, 1 / (power * rate))
    assert noise.variance == pytest.approx(variance, rel=1e-11)
    coverage = Fraction(19, 20)
    least, largest = margins_of_sum(noise, n, coverage)
    assert least <= margin_of_sum(((exact, n),), coverage) <= largest
    least, largest = margins_of_sum(noise, n, coverage, is_cut=True)
    assert least <= margin_of_sum(((exact, n),), coverage, are_cut=True) <= largest


def test_no_noise() -> None:
    noise = CountNoise(None, 2)
    assert noise.variance == threshold_of(noise, Fraction(9, 10)) == 0
    sums = (margins_of_sum(noise, 3, Fraction(1, 2), is_cut=cut) for cut in (False, True))
    assert list(sums) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("tabulation", [PERSONS, TYPES, TENURES], ids=lambda own: own.key)
def test_the_rows_of_a_table_are_sums_of_its_cells(tabulation) -> None:
    """All cells are rows, all rows but the finest are sums of others, and so are tables."""
    for rows, n in zip(tabulation.rows, tabulation.n_cells.tolist(), strict=True):
        assert set(rows.values()) >= {(cell, cell + 1) for cell in range(n)}
        assert len(set(rows.values())) == len(rows)
    assert sorted(tabulation.n_cells) == list(tabulation.n_cells)


def test_regions_of_blocks() -> None:
    rows = [
        ("44", "001", "030100", "99999", "2415"),
        ("44", "001", "030100", "12345", "9999"),
        ("72", "003", "000100", "54321", "9999"),
    ]
    blocks = blocks_of(rows).to_pandas()

    def regions(kind: str) -> list[str | None]:
        found = region_of_blocks(kind, blocks)
        return [None if pd.isna(own) else own for own in found]

    assert {kind: regions(kind) for kind in ("USA", "TRACT", "PLACE", "AIANNH")} == {
        "USA": ["1", "1", None],
        "TRACT": ["44001030100", "44001030100", None],
        "PLACE": [None, "4412345", None],
        "AIANNH": ["2415", None, None],
    }
    assert regions("PR-PLACE") == [None, None, "7254321"]
