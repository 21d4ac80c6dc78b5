"""Coterminous sets and Algorithm 4 against definitions in sets and loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.postprocess import (
    DONATED,
    copy_coterminous,
    coterminous_sets,
    sets_of_rows,
    suppress,
)

TYPES = ("STATE", "COUNTY", "PLACE", "AIANNH")
ORDER = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")


def by_definition(regions: dict, inhabitable) -> set[frozenset[tuple[str, str]]]:
    """Regions with equal blocks, or equal blocks that can hold somebody if there are any."""
    found: dict[object, set] = {}
    for region_type, ids in regions.items():
        for region in set(ids) - {None}:
            blocks = {block for block, own in enumerate(ids) if own == region}
            held = set() if inhabitable is None else {b for b in blocks if inhabitable[b]}
            key = ("held", frozenset(held)) if held else ("all", frozenset(blocks))
            found.setdefault(key, set()).add((region_type, region))
    return {frozenset(members) for members in found.values() if len(members) > 1}


def as_sets(found) -> set[frozenset[tuple[str, str]]]:
    members: dict[int, set] = {}
    for region_type, known in found.items():
        for region, number in known.items():
            members.setdefault(number, set()).add((region_type, region))
    return {frozenset(regions) for regions in members.values()}


@st.composite
def geographies(draw):
    n_blocks = draw(st.integers(1, 7))
    ids = st.sampled_from([None, "a", "b", "c"])
    regions = {t: draw(st.lists(ids, min_size=n_blocks, max_size=n_blocks)) for t in TYPES}
    mask = st.lists(st.booleans(), min_size=n_blocks, max_size=n_blocks)
    return regions, draw(st.one_of(st.none(), mask))


@pytest.mark.slow
@settings(max_examples=130, deadline=None)
@given(geographies())
def test_sets_are_those_of_the_definition(geography) -> None:
    regions, inhabitable = geography
    mask = None if inhabitable is None else np.array(inhabitable)
    found = coterminous_sets(regions, mask)
    assert as_sets(found) == by_definition(regions, inhabitable)


def test_washington() -> None:
    """A state that is one county and one place, its water tract without anybody."""
    regions = {
        "USA": ["1"] * 4,
        "STATE": ["11", "11", "11", "24"],
        "COUNTY": ["11001", "11001", "11001", "24001"],
        "TRACT": ["11001000100", "11001000100", "11001990000", "24001000100"],
        "PLACE": ["1150000", "1150000", "1150000", None],
    }
    capital = frozenset({("STATE", "11"), ("COUNTY", "11001"), ("PLACE", "1150000")})
    other = frozenset({("STATE", "24"), ("COUNTY", "24001"), ("TRACT", "24001000100")})
    assert as_sets(coterminous_sets(regions)) == {capital, other}
    declared = coterminous_sets(regions, np.array([True, True, False, True]))
    assert as_sets(declared) == {capital | {("TRACT", "11001000100")}, other}


def donated_by_loops(rows: list[dict], sets: list[int], order) -> list[dict]:
    after = [dict(row) for row in rows]
    for number in set(sets) - {-1}:
        members = [i for i, s in enumerate(sets) if s == number]
        for iteration in {rows[i]["iteration_code"] for i in members}:
            same = [i for i in members if rows[i]["iteration_code"] == iteration]
            same.sort(key=lambda i: order.index(rows[i]["region_type"]))
            donor = next((i for i in same if not rows[i]["is_suppressed"]), None)
            if donor is not None:
                for i in same:
                    after[i] |= {name: rows[donor][name] for name in DONATED}
                    after[i]["is_suppressed"] = False
    return after


@pytest.mark.parametrize("seed", range(8))
def test_algorithm_4_against_loops(random_groups, seed: int) -> None:
    groups = suppress(random_groups(seed), 6)
    random = np.random.default_rng(seed)
    rows = groups.to_pylist()
    # At most one region of each type in a set, as disjoint regions of a type must be.
    number = {
        (region_type, str(region)): int(number)
        for region_type in ORDER
        for region, number in enumerate(random.permutation([-1, 0, 1, 2]))
    }
    sets = [number[row["region_type"], row["region_id"]] for row in rows]
    order = list(random.permutation(ORDER))
    found = copy_coterminous(groups, np.array(sets), order)
    assert found.schema.names == groups.schema.names
    assert found.to_pylist() == donated_by_loops(rows, sets, order)
    again = copy_coterminous(found, np.array(sets), order)
    assert again.to_pylist() == found.to_pylist()


def test_regions_of_a_set_show_the_same_counts(random_groups) -> None:
    groups = suppress(random_groups(11), 6)
    regions = {t: ["0", "0", "1", "2", "3"] for t in ("STATE", "COUNTY", "PLACE")}
    found = coterminous_sets(regions)
    assert len(as_sets(found)) == 4
    after = copy_coterminous(groups, sets_of_rows(groups, found), ORDER).to_pylist()
    shown: dict[tuple, set] = {}
    for row in after:
        if row["region_type"] in regions:
            key = row["region_id"], row["iteration_code"]
            counts = None if row["is_suppressed"] else tuple(row["value"])
            shown.setdefault(key, set()).add(counts)
    assert shown
    assert all(len(counts) == 1 for counts in shown.values())


def test_the_order_decides_the_donor(measured) -> None:
    groups = measured(
        [
            {"region_type": "STATE", "value": [30]},
            {"region_type": "COUNTY", "value": [20]},
            {"region_type": "PLACE", "value": [10]},
        ]
    )
    groups = suppress(groups, 10)
    sets = np.zeros(3, dtype=np.int64)
    assert copy_coterminous(groups, sets, ORDER)["value"].to_pylist() == [[30]] * 3
    assert copy_coterminous(groups, sets, ORDER)["measured_at"].to_pylist() == ["STATE"] * 3
    lowest_first = copy_coterminous(groups, sets, ORDER[::-1])
    assert lowest_first["value"].to_pylist() == [[20]] * 3
    assert lowest_first["is_suppressed"].to_pylist() == [False] * 3
