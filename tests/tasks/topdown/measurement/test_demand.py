"""Measurement on demand: the rows that matter, their noise, and the estimates that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.geography.levels import Spine
from spineflow.tasks.answers.noisy import (
    DEMANDED_SCHEMA,
    DPQUERY_SUFFIX,
    DemandedAnswers,
    demanded_batches,
    read_demanded,
    read_measurements,
)
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.noise.distributions import Noise
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.stamps import write_parquet_once
from spineflow.tasks.topdown.checks.replicate import estimate, measure
from spineflow.tasks.topdown.estimation.estimate import ShardInput
from spineflow.tasks.topdown.measurement import measure as measuring
from spineflow.tasks.topdown.measurement.measure import (
    ConfidentialShard,
    demanded_answers,
    demanded_rows,
    true_answers,
)
from spineflow.tasks.topdown.paths import demanded_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import (
    Family,
    RunUniverse,
    Shard,
    families_of_shard,
    read_shards,
)
from spineflow.tasks.topdown.workload.budget import Budget

QUERIES = ("total", "hhgq", "hispanic * cenrace", "detailed")
SHARES = (Fraction(1, 2), Fraction(0), Fraction(1))


def budget(*, infinite: bool = False) -> Budget:
    return Budget(
        "persons",
        "discrete_gaussian",
        Fraction(5, 2),
        Fraction(1, 10**10),
        {"Block": Fraction(1)},
        {"Block": dict.fromkeys(QUERIES, Fraction(1, 4))},
        infinite,
    )


@st.composite
def families_and_shards(draw) -> tuple[list[Family], ConfidentialShard]:
    """Families of one to four children, some without a choice, and their children's records."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    families, start = [], 0
    for number, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))):
        k = int(rng.integers(0, 30))
        support = np.sort(rng.choice(PERSONS.n_cells, k, replace=False))
        families.append(Family(str(number), start, start + size, support, np.ones(k, np.int64)))
        start += size
    rows, cells = rng.integers(0, start, 50 * start), rng.integers(0, PERSONS.n_cells, 50 * start)
    records = sparse.coo_array(
        (np.ones(rows.size, np.int64), (rows, cells)), (start, PERSONS.n_cells)
    )
    return families, ConfidentialShard(
        "Block",
        sparse.csr_array(records),
        np.array([f"{i:016d}" for i in range(start)], dtype=object),
        SHARES,
        rng.integers(0, 3, start).astype(np.int32),
    )


@given(families_and_shards())
@settings(max_examples=60, deadline=None)
def test_rows_are_those_that_count_a_cell_of_the_support(drawn):
    families, _ = drawn
    for name in QUERIES:
        query = marginal_query(PERSONS, name)
        for family in families:
            rows = {int(query.row_of_cell[cell]) for cell in family.support}
            if family.stop - family.start == 1 or not family.support.size:
                rows = set()
            assert demanded_rows(query, family).tolist() == sorted(rows)


class Recorded:
    """Noise of one, and how much of which was asked for."""

    def __init__(self) -> None:
        self.sizes: Counter[tuple[str, Noise]] = Counter()

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        self.sizes[part, noise] += size
        return np.ones(size, dtype=np.int64)


@pytest.mark.slow
@given(families_and_shards(), st.sampled_from([1, 100, 1 << 21]))
@settings(max_examples=60, deadline=None)
def test_answers_are_those_of_the_rows_and_their_noise_is_asked_for_once(drawn, at_once):
    families, shard = drawn
    draws, found = Recorded(), {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measuring, "ANSWERS_PER_ROW_GROUP", at_once)
        for group in demanded_answers(shard, families, budget(), PERSONS, draws):
            assert [part.query_name for part in group] == [
                name + DPQUERY_SUFFIX for name in QUERIES
            ]
            for part in group:
                for place, geocode in enumerate(part.geocode):
                    found[part.query_name, geocode] = (*part.of_geounit(place), part.plb[place])
    asked: Counter[tuple[str, Noise]] = Counter()
    for name in QUERIES:
        query = marginal_query(PERSONS, name)
        truth = true_answers(shard.histograms, query)
        for family in families:
            for i in range(family.start, family.stop):
                share = SHARES[shard.plb_share_code[i]]
                key = name + DPQUERY_SUFFIX, shard.geocode[i]
                if not share:
                    assert key not in found
                    continue
                rows, values, plb = found.pop(key)
                wanted = demanded_rows(query, family)
                assert np.array_equal(rows, wanted)
                assert np.array_equal(values, truth[i][wanted] + 1)
                assert Fraction(plb) == Fraction(5, 2) * share / 4
                noise = Noise("discrete_gaussian", 1 / Fraction(plb))
                asked[f"Block/{name}", noise] += wanted.size
    assert not found
    assert +draws.sizes == +asked


def test_files_keep_answers(tmp_path: Path):
    geocode = np.array(["c", "a", "b"], dtype=object)
    starts, rows = np.array([0, 2, 2, 3]), np.array([1, 4, 0])
    values, plb = np.array([-3, 2**40, 7]), np.array(["1/2"] * 3, dtype=object)
    written = DemandedAnswers("total_dpq", geocode, starts, rows, values, np.full(3, 2.5), plb)
    file = tmp_path / "0.parquet"
    write_parquet_once(file, DEMANDED_SCHEMA, demanded_batches([[written]]))
    found = read_demanded(file, np.array(["a", "x", "c"]))["total_dpq"]
    assert [found.of_geounit(i)[0].tolist() for i in range(3)] == [[], [], [1, 4]]
    assert found.of_geounit(2)[1].tolist() == [-3, 2**40]
    assert found.variance.tolist() == [2.5, np.inf, 2.5]
    assert found.plb.tolist() == ["1/2", "0", "1/2"]


def kept_rows(
    path: Path, families: list[Family], schema: Schema, geocode: np.ndarray
) -> Iterator[list[DemandedAnswers]]:
    """What measuring on demand would have drawn, from measurements of everything."""
    for name, answers in read_measurements(path, geocode).items():
        query = marginal_query(schema, name.removesuffix(DPQUERY_SUFFIX))
        kept = np.flatnonzero(np.isfinite(answers.variance))
        rows = [
            demanded_rows(query, family)
            for family in families
            for i in range(family.start, family.stop)
            if i in kept
        ]
        values = [answers.values[i][own] for i, own in zip(kept, rows, strict=True)]
        starts = np.append(0, np.cumsum([own.size for own in rows]))
        flat = (np.concatenate(parts) for parts in (rows, values))
        yield [
            DemandedAnswers(
                name, geocode[kept], starts, *flat, answers.variance[kept], answers.plb[kept]
            )
        ]


def on_demand(settings: TopdownSettings) -> TopdownSettings:
    workload = {
        name: section.model_copy(update={"on_demand": True})
        for name, section in settings.workload.items()
    }
    return settings.model_copy(update={"workload": workload})


@pytest.fixture(scope="module")
def both_ways(cut_county, tmp_path_factory: pytest.TempPathFactory):
    """A run that was measured as a whole and estimated, one of the rows on demand, not estimated
    yet at the blocks, the settings, the spine and the shards."""
    layout, chosen = cut_county
    folder = tmp_path_factory.mktemp("both-ways")
    whole = measure(layout, chosen, folder / "measured")
    whole = estimate(whole, chosen, folder / "whole")
    run = RunDirectory(folder / "demanded")
    run.root.mkdir()
    (run.root / "spine").symlink_to(whole.root / "spine")
    demanding = on_demand(chosen)
    universe = RunUniverse(run, demanding, "persons")
    spine = universe.spine
    shards = read_shards(spine_folder(whole, "persons"))
    for shard in shards:
        place = "persons", shard.geolevel
        constraints = run.measurements(*place) / "constraints"
        if not constraints.exists():
            constraints.parent.mkdir(parents=True)
            constraints.symlink_to(whole.measurements(*place) / "constraints")
        families = list(families_of_shard(universe, shard))
        geocode = spine.geolevel(shard.geolevel).geocode[shard.start : shard.stop]
        kept = kept_rows(whole.dpqueries(*place, shard.name), families, PERSONS, geocode)
        file = demanded_file(run, *place, shard.name)
        write_parquet_once(file, DEMANDED_SCHEMA, demanded_batches(kept))
        ShardInput.read(universe, shard).estimate()
    return whole, run, demanding, spine, shards


Both = tuple[RunDirectory, RunDirectory, TopdownSettings, Spine, tuple[Shard, ...]]


@pytest.mark.slow
def test_the_same_noise_gives_the_same_estimates(both_ways: Both):
    whole, run, _, _, shards = both_ways
    assert {shard.geolevel for shard in shards} >= {"US", "State", "Tract", "Block"}
    for shard in shards:
        place = "persons", shard.geolevel, shard.name
        assert run.estimates(*place).read_bytes() == whole.estimates(*place).read_bytes()


def test_measurements_for_other_estimates_are_refused(both_ways: Both):
    """A parent's estimate in other cells demands other rows than were measured.

    Threat model: measurements on demand taken for complete ones.
    """
    _, run, demanding, spine, shards = both_ways
    last = next(shard for shard in shards if shard.geolevel == "Block")
    given = ShardInput.read(RunUniverse(run, demanding, "persons"), last)
    family = next(family for family in given.families() if not family.is_settled)
    cell = next(c for c in range(PERSONS.n_cells) if c not in family.support)
    other = Family(
        family.parent,
        family.start,
        family.stop,
        np.append(family.support, cell),
        np.append(family.counts, 1),
    )
    assert given.estimate([family])
    with pytest.raises(InputRefused, match="measured on demand for other estimates"):
        given.estimate([other])
