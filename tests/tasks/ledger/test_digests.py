from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import IDENTITY_COLUMNS as PERSON_COLUMNS
from spineflow.tasks.ledger.digests import input_digest, unnamed_digest

KEY = b"k" * 32


def persons(n: int = 500, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    blocks = np.array([4400101000011000, 4400101000011001, 4400302000011000])
    columns = (rng.choice(blocks, n), rng.integers(0, 116, n), rng.integers(0, 63, n))
    return dict(zip(PERSON_COLUMNS, (*columns, rng.integers(1, 3, n)), strict=True))


def rearranged(columns: dict, order: np.ndarray) -> dict:
    return {name: column[order] for name, column in columns.items()}


def test_order_of_records_and_type_of_geocodes_do_not_matter():
    people = persons()
    order = np.random.default_rng(2).permutation(500)
    shuffled = rearranged(people, order)
    shuffled["block_geocode"] = shuffled["block_geocode"].astype(str).astype(object)
    assert input_digest("persons", shuffled, KEY) == input_digest("persons", people, KEY)


def test_every_record_and_its_multiplicity_matter():
    people = persons()
    whole = input_digest("persons", people, KEY).whole
    others = {input_digest("persons", people, b"other key" * 4).whole}
    others.add(input_digest("units", people, KEY).whole)
    others.add(input_digest("persons", rearranged(people, np.arange(499)), KEY).whole)
    others.add(input_digest("persons", rearranged(people, np.r_[0:500, 0]), KEY).whole)
    older = {**people, "age": people["age"] + (np.arange(500) == 7)}
    others.add(input_digest("persons", older, KEY).whole)
    swapped = {name: people[name] for name in ("block_geocode", "cenrace", "age", "persons")}
    others.add(input_digest("persons", swapped, KEY).whole)
    assert whole not in others
    assert len(others) == 6


def test_a_county_alone_is_a_part_of_its_state():
    people = persons()
    state = input_digest("persons", people, KEY)
    in_county = people["block_geocode"] // 10**11 == 44003
    county = input_digest("persons", rearranged(people, np.flatnonzero(in_county)), KEY)
    assert len(state.parts) == 2
    assert county.whole in state.parts
    assert county.parts == (county.whole,)


def test_strings_and_tables_without_blocks():
    trips = {"origin": np.array(["a", "bb", "é"]), "n": np.array([1, 2, 3])}
    digest = input_digest("trips", trips, KEY)
    assert digest.parts == ()
    reversed_trips = {name: column[::-1] for name, column in trips.items()}
    assert input_digest("trips", reversed_trips, KEY) == digest
    empty = {name: column[:0] for name, column in persons().items()}
    assert input_digest("persons", empty, KEY).parts == ()


def test_floats_are_refused():
    with pytest.raises(TypeError, match="not floats"):
        input_digest("trips", {"n": np.array([1.5])}, KEY)


def unnamed(table: dict[str, np.ndarray], key: bytes = b"k") -> str:
    *columns, count = table.values()
    return unnamed_digest("trips", columns, count, key)


TRIPS = {
    "home": np.array(["a1", "a2", "b1", "b1"]),
    "work": np.array(["b1", "a1", "a2", "b1"]),
    "n": np.array([3, 4, 5, 6]),
}


def test_a_table_of_counts_is_known_under_other_names_and_in_another_order() -> None:
    digest = unnamed(TRIPS)
    assert unnamed({f"other {name}": column for name, column in TRIPS.items()}) == digest
    assert unnamed({name: column[::-1] for name, column in TRIPS.items()}) == digest
    home, work, n = TRIPS.values()
    assert unnamed({"work": work, "home": home, "n": n}) == digest
    region = np.array([code[0] for code in home])
    assert unnamed({"region": region, "home": home, "work": work, "n": n}) == digest


def test_other_trips_are_others() -> None:
    home, work, n = TRIPS.values()
    digest = unnamed(TRIPS)
    assert unnamed({"home": home, "work": work, "n": n + np.array([1, -1, 0, 0])}) != digest
    assert unnamed({"home": home, "work": np.roll(work, 1), "n": n}) != digest
    assert unnamed({"home": home, "work": work, "n": n}, b"another key") != digest
