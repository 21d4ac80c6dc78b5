"""Sizes of tasks: what a stage has to do does not depend on how it is cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.spine import sizes
from spineflow.tasks.topdown.spine.shards import Shard
from spineflow.tasks.topdown.spine.sizes import ANSWERS_PER_BLOCK, sizes_of_calls

N_GEOUNITS = {"US": 1, "State": 50, "Block": 200_000}
SETTINGS = SimpleNamespace(
    run=SimpleNamespace(universes=["persons"]),
    schema_of=lambda _universe: PERSONS,
    budget_of=lambda _universe: SimpleNamespace(query_shares={"State": {"total": 1}}),
)


def sizes_of(monkeypatch, step: str, geolevel: str, cuts: list[int]) -> list[float]:
    """Sizes of the shards of a geolevel that is cut here, the other geolevels being whole."""

    def shard(level: str, number: int, start: int, stop: int) -> Shard:
        return Shard(level, f"{number:05d}", 0, 1, start, stop)

    spine = {level: [shard(level, 0, 0, n)] for level, n in N_GEOUNITS.items()}
    ends = [0, *cuts, N_GEOUNITS[geolevel]]
    pairs = zip(ends, ends[1:], strict=False)
    spine[geolevel] = [shard(geolevel, number, *pair) for number, pair in enumerate(pairs)]
    monkeypatch.setattr(sizes, "shards_by_geolevel", lambda _run, _universe: spine)
    keys = [("persons", geolevel, own.name) for own in spine[geolevel]]
    return sizes_of_calls(RunDirectory(Path("run")), SETTINGS, step, keys)


@pytest.mark.parametrize("step", ["measure", "estimate", "combine"])
@pytest.mark.parametrize("geolevel", ["State", "Block"])
def test_shards_share_what_a_geolevel_takes(monkeypatch, step: str, geolevel: str) -> None:
    (whole,) = sizes_of(monkeypatch, step, geolevel, [])
    parts = sizes_of(monkeypatch, step, geolevel, [10, 40])
    assert sum(parts) == pytest.approx(whole)
    assert parts[1] == pytest.approx(3 * parts[0])


def test_measuring_takes_its_answers_and_the_blocks_that_are_summed(monkeypatch) -> None:
    (of_states,) = sizes_of(monkeypatch, "measure", "State", [])
    assert of_states == pytest.approx(50 + ANSWERS_PER_BLOCK * 200_000)


def test_a_geounit_takes_longer_to_estimate_the_more_blocks_it_has(monkeypatch) -> None:
    nation, state, block = (
        sizes_of(monkeypatch, "estimate", geolevel, [])[0] / n for geolevel, n in N_GEOUNITS.items()
    )
    assert nation > 4 * state > 4 * block > 0


def test_what_is_no_shard_shares_the_blocks(monkeypatch) -> None:
    sizes_of(monkeypatch, "estimate", "Block", [])
    shared = sizes_of_calls(RunDirectory(Path("run")), SETTINGS, "write", [("one",), ("two",)])
    assert shared == [100_000.0, 100_000.0]
