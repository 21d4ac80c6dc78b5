"""True counts of groups: against sets of texts person by person, whatever the cuts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest import counts
from spineflow.tasks.detailed_groups.ingest.counts import (
    GroupCounts,
    PersonBatch,
    PersonTally,
    count_groups,
    read_counts,
    write_counts,
)
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.detailed_groups.workload.regions import NO_REGION
from spineflow.tasks.detailed_groups.workload.specification import (
    NONE,
    code_positions,
    iteration_universe,
)
from spineflow.tasks.detailed_groups.workload.tabulations import N_FINEST, finest_cell

N_AREAS = 12


def random_batch(random: np.random.Generator, n: int, n_codes: int) -> PersonBatch:
    races = random.integers(n_codes, size=(n, 8)).astype(np.int16)
    races[np.arange(8) >= random.integers(1, 5, size=(n, 1))] = NONE
    return PersonBatch(
        block=random.integers(N_AREAS, size=n),
        sex=random.integers(2, size=n),
        age=random.integers(116, size=n),
        cenrace=random.integers(63, size=n),
        race_codes=races,
        ethnicity_code=random.integers(n_codes, size=n).astype(np.int16),
    )


@pytest.fixture(scope="module")
def specification(groups_input: Path):
    return read_specification(str(groups_input / "params"))


@pytest.fixture(scope="module")
def batches(specification) -> list[PersonBatch]:
    random = np.random.default_rng(8)
    return [random_batch(random, n, len(specification.names)) for n in (300, 1, 250)]


def tally(batches: list[PersonBatch], max_race_codes: int = 8):
    tally = PersonTally(np.arange(N_AREAS)[::-1].astype(np.int32), max_race_codes)
    for batch in batches:
        tally.add(batch)
    return tally.finish()


def brute_force(
    batches: list[PersonBatch],
    specification,
    granularity: str,
    level: int,
    region_of_area,
    most: int,
) -> Counter:
    """Counts by region, iteration code and cell, from sets of texts."""
    code_of = {number: code for code, number in code_positions(specification).items()}
    kept = {
        code: item
        for code, item in specification.iterations.items()
        if item.level == level
        and not (item.coarse_only if granularity == "detailed" else item.detailed_only)
    }
    of_code: dict[str, dict[bool | None, set[str]]] = {
        code: {True: set(), False: set(), None: set()} for code in specification.names
    }
    for iteration, code in specification.pairs:
        if iteration in kept:
            of_code[code][kept[iteration].is_alone].add(iteration)
    found: Counter = Counter()
    for batch in batches:
        for i in range(batch.block.size):
            region = region_of_area[N_AREAS - 1 - batch.block[i]]
            if region == NO_REGION:
                continue
            codes = {code_of[n] for n in batch.race_codes[i, :most] if n != NONE}
            groups = set.intersection(*(of_code[code][True] for code in codes))
            groups = groups.union(*(of_code[code][False] for code in codes))
            groups |= of_code[code_of[int(batch.ethnicity_code[i])]][None]
            cell = int(finest_cell(np.array(batch.sex[i]), np.array(batch.age[i])))
            found.update((int(region), iteration, cell) for iteration in groups)
    return found


def as_counter(parts: list[GroupCounts], universe) -> Counter:
    found: Counter = Counter()
    for part in parts:
        rows = zip(part.region, universe.codes[part.iteration], part.cell, strict=True)
        for (region, iteration, cell), count in zip(rows, part.count, strict=True):
            key = int(region), iteration, int(cell)
            assert key not in found
            found[key] = int(count)
    return found


@pytest.mark.parametrize("granularity", ["detailed", "coarse"])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("rows", [7, 1 << 20])
def test_counts_are_those_of_sets(
    batches, specification, granularity, level, most, rows, monkeypatch
) -> None:
    monkeypatch.setattr(counts, "ROWS_AT_A_TIME", rows)
    persons, _ = tally(batches, most)
    region_of_area = np.random.default_rng(2).integers(-1, 4, N_AREAS).astype(np.int32)
    universe = iteration_universe(specification, granularity, level)
    parts = list(count_groups(persons, region_of_area, universe))
    expected = brute_force(batches, specification, granularity, level, region_of_area, most)
    assert as_counter(parts, universe) == expected
    region = np.concatenate([part.region for part in parts])
    assert (np.diff(region) >= 0).all()


def test_batches_are_no_matter(batches) -> None:
    whole = PersonBatch(
        *(
            np.concatenate([getattr(batch, name) for batch in batches])
            for name in PersonBatch.__dataclass_fields__
            if name != "household"
        )
    )
    for one, other in zip(tally(batches), tally([whole]), strict=True):
        for name in type(one).__dataclass_fields__:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_of_households_householders_are_counted_and_everybody_is_known(batches) -> None:
    """By the cell of their household, which says nothing of anybody else."""
    random = np.random.default_rng(4)
    cells = [random.integers(-1, N_FINEST, len(batch.block)) for batch in batches]
    told = [
        dataclasses.replace(batch, household=own) for batch, own in zip(batches, cells, strict=True)
    ]
    counted, identity = tally(told)
    for name in type(identity).__dataclass_fields__:
        assert np.array_equal(getattr(identity, name), getattr(tally(batches)[1], name))
    every = np.concatenate(cells)
    assert counted.count.sum() == (every >= 0).sum()
    found = np.bincount(counted.cell, weights=counted.count, minlength=N_FINEST)
    assert np.array_equal(found, np.bincount(every[every >= 0], minlength=N_FINEST))


def test_identity_counts_persons_by_block_age_and_race(batches) -> None:
    _, identity = tally(batches)
    frame = pd.DataFrame(
        {
            name: np.concatenate([getattr(batch, name) for batch in batches])
            for name in ("block", "age", "cenrace")
        }
    )
    expected = frame.value_counts().sort_index()
    found = pd.Series(identity.count, [identity.block, identity.age, identity.cenrace])
    assert found.tolist() == expected.tolist()
    assert found.index.tolist() == expected.index.tolist()


def test_counts_of_some_regions_are_read_alone(
    batches, specification, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(counts, "ROWS_AT_A_TIME", 50)
    persons, _ = tally(batches)
    universe = iteration_universe(specification, "coarse", 2)
    region_of_area = np.arange(N_AREAS, dtype=np.int32)
    path = tmp_path / "counts.parquet"
    write_counts(path, count_groups(persons, region_of_area, universe))
    whole = read_counts(path, 0, N_AREAS)
    for start, stop in ((0, 5), (5, 9), (9, N_AREAS), (3, 3)):
        part = read_counts(path, start, stop)
        rows = (whole.region >= start) & (whole.region < stop)
        for name in GroupCounts.__dataclass_fields__:
            assert np.array_equal(getattr(part, name), getattr(whole, name)[rows])


def test_counts_too_large_to_be_packed_are_summed_all_the_same() -> None:
    key = np.array([5, 1 << 60, 5, 0])
    count = np.array([1 << 40, 2, 3, 4])
    keys, sums = counts._sum_keys(key, count)
    assert keys.tolist() == [0, 5, 1 << 60]
    assert sums.tolist() == [4, (1 << 40) + 3, 2]
