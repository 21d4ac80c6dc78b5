from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.tasks.census.census import compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.workload.implied_types import implied_answers, implied_labels, implying

CENSUS = compiled(
    CensusDeclaration.model_validate(
        {
            "geography": {"table": "areas", "geolevels": ["all", "area"]},
            "attributes": {
                "kind": {
                    "column": "kind",
                    "levels": {"home": ["0"], "prison": ["1"], "dorm": ["2"], "barracks": ["3"]},
                },
                "race": {"column": "race", "levels": {"a": ["a"], "b": ["b"]}},
                "age": {"column": "age", "bins": [0, 18], "largest": 99},
                "house": {
                    "column": "kind",
                    "levels": {"home": ["0"], "prison": ["1"], "dorm": ["2"], "barracks": ["3"]},
                },
            },
            "coarsenings": {
                "major": {
                    "attribute": "kind",
                    "levels": {
                        "home": ["home"],
                        "inside": ["prison"],
                        "free": ["dorm", "barracks"],
                    },
                }
            },
            "universes": {
                "houses": {"table": "houses", "attributes": ["house"], "area": "area"},
                "people": {
                    "table": "people",
                    "attributes": ["kind", "race", "age"],
                    "area": "area",
                    "held_to": [{"release": "earlier", "query": "major * race"}],
                    "bounds": [
                        {
                            "query": "kind",
                            "where": {"kind": ["prison", "dorm", "barracks"]},
                            "per": "houses",
                            "by": "house",
                            "at_least": 1,
                            "at_most": 99,
                        },
                        {
                            "query": "kind",
                            "where": {"kind": ["home"]},
                            "per": "houses",
                            "by": "house",
                            "at_most": 99,
                        },
                    ],
                },
            },
        }
    )
)
PEOPLE = CENSUS.universes["people"]
SCHEMA = PEOPLE.schema


def implied(answers, houses, forbidden=None):
    held, bounds = implying(PEOPLE, SCHEMA)
    houses = np.asarray(houses)
    inside = [np.array([0, 1, 1, 1]), np.array([1, 0, 0, 0])]
    nobody = np.zeros(SCHEMA.n_cells, dtype=bool) if forbidden is None else forbidden
    return implied_answers(
        SCHEMA,
        held,
        bounds,
        sparse.csr_array(np.asarray(answers, dtype=np.int64)),
        [houses * mask for mask in inside],
        nobody,
        [f"area {i}" for i in range(len(houses))],
    ).toarray()


def by_kind_and_race(found):
    """Sums (n_areas, 4, 2) of implied answers, from the labels of cells."""
    label, *_ = implied_labels(SCHEMA, "major * race", "kind")
    kind, race = SCHEMA.levels("kind"), SCHEMA.levels("race")
    sums = np.zeros((len(found), 4, 2), dtype=np.int64)
    for cell in range(SCHEMA.n_cells):
        if SCHEMA.levels("age")[cell] == 0:
            sums[:, kind[cell], race[cell]] += found[:, label[cell]]
    return sums


def test_one_type_in_an_area_takes_all_of_its_coarse_type():
    # Rows: home a, b; inside a, b; free a, b.
    found = implied([[5, 2, 1, 0, 3, 4], [0, 1, 0, 0, 7, 0]], [[3, 1, 0, 1], [1, 0, 2, 0]])
    assert by_kind_and_race(found).tolist() == [
        [[5, 2], [1, 0], [0, 0], [3, 4]],
        [[0, 1], [0, 0], [7, 0], [0, 0]],
    ]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    free=st.lists(st.integers(0, 30), min_size=2, max_size=2),
    dorms=st.integers(1, 4),
    barracks=st.integers(1, 4),
)
def test_several_types_share_in_proportion_and_none_is_below_its_bound(free, dorms, barracks):
    answers, houses = [[1, 1, 0, 0, *free]], [[1, 0, dorms, barracks]]
    if sum(free) < dorms + barracks:
        with pytest.raises(InputRefused):
            implied(answers, houses)
        return
    shared = by_kind_and_race(implied(answers, houses))[0, 2:]
    assert shared.sum(axis=0).tolist() == free
    assert (shared.sum(axis=1) >= [dorms, barracks]).all()
    wanted = sum(free) * dorms / (dorms + barracks)
    nearest = min(max(wanted, dorms), sum(free) - barracks)
    assert abs(shared[0].sum() - nearest) < 1


def test_what_has_no_type_to_be_of_is_refused():
    with pytest.raises(InputRefused, match="area 1"):
        implied([[1, 0, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0]], [[1, 0, 0, 0], [1, 0, 1, 0]])


def test_structural_zeros_rule_types_out():
    nobody = SCHEMA.cells_where({"kind": ["dorm"], "race": ["b"]})
    found = implied([[0, 0, 0, 0, 2, 3]], [[0, 0, 1, 1]], nobody)
    assert by_kind_and_race(found)[0, 2, 1] == 0


def test_a_facility_without_persons_is_refused():
    with pytest.raises(InputRefused, match="area 0"):
        implied([[1, 0, 0, 0, 0, 0]], [[1, 1, 0, 0]])
