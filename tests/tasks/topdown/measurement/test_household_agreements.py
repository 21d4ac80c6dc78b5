"""Limits on people who agree with released dwellings: they are what every area can have, one by
one, their sums are what sums of areas can have, and estimates of any noise meet them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.agreements import agreeing_types
from spineflow.tasks.census.census import Census, compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.estimation.parent import Passes, estimate_children
from spineflow.tasks.topdown.estimation.problem import NO_BOUND, QueryMeasurement, SiblingProblem
from spineflow.tasks.topdown.measurement.public_answers import household_limits

PEOPLE = {"none": (0, 0), "one": (1, 1), "two": (2, 2), "more": (3, 5)}


def tree(**changes) -> dict:
    """A declaration of dwellings and people, with changes of parts by their paths."""
    made = {
        "geography": {"table": "areas", "geolevels": ["country", "district", "section"]},
        "attributes": {
            "role": {
                "column": "role",
                "levels": {"householder": ["h"], "member": ["m"], "guest": ["g"]},
            },
            "sex": {"column": "sex", "levels": {"female": ["F"], "male": ["M"]}},
            "head": {
                "column": "head",
                "levels": {"nobody": ["-"], "male": ["M"], "female": ["F"]},
            },
            "size": {"column": "size", "levels": {size: [size] for size in PEOPLE}},
        },
        "coarsenings": {
            "home": {
                "attribute": "role",
                "levels": {"inside": ["householder", "member"], "outside": ["guest"]},
            }
        },
        "universes": {
            "dwellings": {
                "table": "dwellings",
                "attributes": ["size", "head"],
                "area": ["district", "section"],
                "invariants": [{"query": "total", "geolevel": "section"}],
                "structural_zeros": [
                    {"where": {"size": ["none"], "head": ["male", "female"]}},
                ],
            },
            "people": {
                "table": "people",
                "attributes": ["role", "sex"],
                "area": ["district", "section"],
                "agree": [
                    {
                        "name": "householders",
                        "kind": "householders",
                        "query": "sex",
                        "where": {"role": ["householder"]},
                        "universe": "dwellings",
                        "called": {"sex": "head"},
                        "of": {"head": ["female", "male"]},
                    },
                    {
                        "name": "room",
                        "kind": "sizes",
                        "where": {"home": ["inside"]},
                        "universe": "dwellings",
                        "size": "size",
                        "people": {size: list(limits) for size, limits in PEOPLE.items()},
                    },
                ],
            },
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = made
        for key in parents:
            part = part[int(key)] if isinstance(part, list) else part[key]
        if isinstance(part, list):
            part[int(last)] = value
        elif value is None:
            del part[last]
        else:
            part[last] = value
    return made


def census(**changes) -> Census:
    return compiled(CensusDeclaration.model_validate(tree(**changes)))


@st.composite
def dwellings(draw) -> np.ndarray:
    """Dwellings of up to three areas, `(n, 4, 2)` by size and head's sex; those without anybody
    have none."""
    n = draw(st.integers(1, 3))
    found = np.zeros((n, len(PEOPLE), 2), dtype=np.int64)
    for area in range(n):
        for _ in range(draw(st.integers(0, 2))):
            found[area, draw(st.integers(0, 3)), draw(st.integers(0, 1))] += 1
    return found


@given(dwellings())
def test_sums_within_limits_are_those_that_areas_can_have(found) -> None:
    least, most = (
        found.sum(axis=2) @ np.array([limits[side] for limits in PEOPLE.values()])
        for side in (0, 1)
    )
    heads = found[:, 1:].sum(axis=1)
    low, high = household_limits(heads, least, most)
    others = low - heads.sum(axis=1), high - heads.sum(axis=1)
    possible = []
    for area in range(len(found)):
        rooms = [
            range(limits[0], limits[1] + 1)
            for size, limits in enumerate(PEOPLE.values())
            for _ in range(found[area, size].sum())
        ]
        # Whoever is in a dwelling, one is its householder, of the sex that is released.
        inside = {sum(chosen) for chosen in itertools.product(*rooms)}
        possible.append({number - heads[area].sum() for number in inside})
        assert possible[-1] == set(range(others[0][area], others[1][area] + 1))
    sums = {sum(chosen) for chosen in itertools.product(*possible)}
    assert sums == set(range(others[0].sum(), others[1].sum() + 1))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_areas=st.integers(1, 6),
    noise=st.sampled_from([0.0, 1.0, 10.0, 1000.0]),
    kinds=st.sampled_from([(True, True), (True, False), (False, True)]),
)
def test_estimates_of_any_noise_agree_in_every_area(seed, n_areas, noise, kinds) -> None:
    """The country, its districts and their sections are estimated as a run estimates them."""
    rng = np.random.default_rng(seed)
    made = census()
    universe = made.universes["people"]
    agreements = [one for one, kept in zip(universe.agreements, kinds, strict=True) if kept]
    schema = made.schema("people")
    types = agreeing_types(agreements, schema)
    found = rng.integers(0, 3, (n_areas, len(PEOPLE), 2)) * rng.integers(0, 2, (n_areas, 1, 1))
    heads = found[:, 1:, ::-1].sum(axis=1)
    limits = np.array(list(PEOPLE.values()))
    least, most = found.sum(axis=2) @ limits[:, 0], found.sum(axis=2) @ limits[:, 1]
    lower = np.zeros((n_areas, types.n_types), dtype=np.int64)
    upper = np.full((n_areas, types.n_types), NO_BOUND)
    householders = heads if kinds[0] else None
    if kinds[0]:
        lower[:, 1:3] = upper[:, 1:3] = heads
    if kinds[1]:
        low, high = household_limits(householders, least, most)
        sums = heads.sum(axis=1) * kinds[0]
        lower[:, -1], upper[:, -1] = low - sums, high - sums
    district = rng.integers(0, 2, n_areas)
    order = np.argsort(types.label, kind="stable")
    queries = [marginal_query(schema, name) for name in ("total", "role", "detailed")]

    def summed(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
        sums = np.zeros((groups.max() + 1, values.shape[1]), dtype=np.int64)
        np.add.at(sums, groups, np.minimum(values, NO_BOUND // n_areas))
        return np.where(sums >= NO_BOUND // n_areas, NO_BOUND, sums)

    def estimated(rows: np.ndarray, parent: np.ndarray | None, groups: np.ndarray) -> np.ndarray:
        local = np.unique(groups, return_inverse=True)[1].reshape(-1)
        bounds = [summed(values[rows], local) for values in (lower, upper)]
        n = local.max() + 1
        problem = SiblingProblem(
            [str(i) for i in range(n)], order, types.label[order], parent, *bounds
        )
        truth = rng.integers(0, 4, (n, schema.n_cells))
        answers = {
            query.name: QueryMeasurement(
                query,
                query.answer(truth) + noise * rng.normal(size=(n, query.n_rows)),
                np.ones(n),
            )
            for query in queries
        }
        passes = Passes((("total",), ("role", "detailed")), (tuple(queries[:1]), (queries[2],)))
        x, records = estimate_children("0", problem, answers, passes)
        assert {record.solver for record in records if record.stage == "rounder"} <= {"flow"}
        assert not any(record.relaxed for record in records)
        return x

    every = np.arange(n_areas)
    root = estimated(every, None, np.zeros(n_areas, dtype=int))
    districts = estimated(every, root[0], district)
    for number, one in enumerate(np.unique(district)):
        inside = np.flatnonzero(district == one)
        x = np.zeros((inside.size, schema.n_cells), dtype=np.int64)
        x[:, order] = estimated(inside, districts[number], np.arange(inside.size))
        by_role = x.reshape(-1, 3, 2)
        if kinds[0]:
            assert np.array_equal(by_role[:, 0], heads[inside])
        if kinds[1]:
            people = by_role[:, :2].sum(axis=(1, 2))
            assert (least[inside] <= people).all() and (people <= most[inside]).all()


BOUND = {"query": "home", "where": {"home": ["inside"]}, "per": "dwellings", "at_most": 5}


@pytest.mark.parametrize(
    "bounds",
    [
        [BOUND],
        [{"query": "total", "per": "dwellings", "at_most": 5}],
        [{"query": "home", "where": {"home": ["outside"]}, "per": "dwellings", "at_least": 1}],
        [{"query": "role", "where": {"role": ["householder"]}, "per": "dwellings", "at_most": 1}],
        [BOUND, {"query": "total", "per": "dwellings", "at_most": 9}],
    ],
)
def test_bounds_that_leave_a_solution_may_stand_beside(bounds) -> None:
    assert len(census(universes__people__bounds=bounds).universes["people"].bounds) == len(bounds)


AGREE = "universes__people__agree__"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({f"{AGREE}0__universe": "dwelings"}, r"no universe \(did you mean 'dwellings'\?\)"),
        ({f"{AGREE}0__called": {"sex": "haed"}}, r"lacks 'haed' \(did you mean 'head'\?\)"),
        ({f"{AGREE}0__called": {}}, "lacks .sex.; name it in called"),
        ({f"{AGREE}0__called": {"sex": "head", "age": "head"}}, "not in the query 'sex'"),
        ({f"{AGREE}0__called": {"sex": "size"}}, "has other levels of sex"),
        ({f"{AGREE}0__of": {}}, "has other levels of sex, such as 'nobody'"),
        ({f"{AGREE}0__of": {"hed": ["male"]}}, r"'hed' is not in .* \(did you mean 'head'\?\)"),
        ({f"{AGREE}0__where": {"role": ["head"]}}, "'role' has no level 'head'"),
        ({f"{AGREE}0__query": "sx"}, r"did you mean 'sex'"),
        ({f"{AGREE}0__where": {"role": ["guest"]}}, "not among the people of 'room'"),
        ({f"{AGREE}1__size": "sise"}, r"did you mean 'size'"),
        ({f"{AGREE}1__people": {"none": 0, "one": 1, "to": 2}}, r"'to', .* \(did you mean 'two'"),
        (
            {f"{AGREE}1__people": {"none": 0, "one": 1, "two": 2}},
            "the level 'more' of",
        ),
        ({f"{AGREE}1__people": {"one": [2, 1]}}, "the smaller first"),
        ({f"{AGREE}1__people": {}}, "kind 'sizes' needs people"),
        ({f"{AGREE}1__at_most": 3}, "at_most does nothing"),
        ({f"{AGREE}1__query": "role"}, "query does nothing"),
        ({f"{AGREE}1__called": {"a": "b"}}, "called does nothing"),
        ({"universes__dwellings__structural_zeros": []}, "in which 'room' has nobody"),
        (
            {"universes__people__invariants": [{"query": "total", "geolevel": "district"}]},
            "without the invariant 'total' at 'district'",
        ),
        ({"universes__people__bounds": [BOUND | {"at_most": 4}]}, "at_most at least 5"),
        ({"universes__people__bounds": [BOUND | {"at_least": 1}]}, "without at_least"),
        (
            {"universes__people__bounds": [BOUND], "universes__dwellings__invariants": []},
            "whose total must be exact",
        ),
        (
            {
                "universes__people__bounds": [
                    BOUND | {"query": "sex", "where": {"sex": ["male"]}, "at_most": 9}
                ]
            },
            "on people who agree or on all of them and others",
        ),
        (
            {
                "universes__people__bounds": [
                    {"query": "total", "per": "dwellings", "at_most": 9},
                    BOUND | {"where": {"home": ["outside"]}},
                ]
            },
            "only without a bound such as",
        ),
        (
            {
                "universes__people__structural_zeros": [
                    {"where": {"role": ["householder"], "sex": ["male"]}}
                ]
            },
            "leave no cell",
        ),
        (
            {
                "universes__people__relations": [
                    {"name": "few", "left": [{"where": {"role": ["guest"]}}], "sign": "="}
                ]
            },
            "cannot be combined with relations",
        ),
        ({f"{AGREE}1__name": "householders"}, "declares 'householders' twice"),
    ],
)
def test_what_is_wrong_is_refused(changes, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        census(**changes)


def dwellings_last(bounds: list[dict]) -> Census:
    """Dwellings that follow the householders of people with some bounds."""
    made = tree(universes__people__agree=[], universes__people__bounds=bounds)
    made["universes"] = dict(reversed(made["universes"].items()))
    made["universes"]["dwellings"]["agree"] = [
        {
            "name": "householders",
            "kind": "householders",
            "query": "head",
            "where": {"head": ["female", "male"]},
            "universe": "people",
            "called": {"head": "sex"},
            "of": {"role": ["householder"]},
        }
    ]
    return compiled(CensusDeclaration.model_validate(made))


def test_dwellings_follow_householders_who_are_bounded_by_them() -> None:
    bound = {"query": "role", "where": {"role": ["householder"]}, "per": "dwellings"}
    assert dwellings_last([bound | {"at_most": 1}]).universes["dwellings"].needs == ("people",)
    for bounds in ([], [bound | {"at_most": 2}]):
        with pytest.raises(ValueError, match="needs a bound on these records of 'people'"):
            dwellings_last(bounds)


@pytest.mark.parametrize("kind", ["presence", "sizes"])
def test_one_of_each_kind_and_none_of_presence(kind) -> None:
    made = tree()
    more = made["universes"]["people"]["agree"][1] | {"name": "more", "kind": kind}
    if kind == "presence":
        del more["size"], more["people"]
        more["at_most"] = 5
    made["universes"]["people"]["agree"].append(more)
    with pytest.raises(ValueError, match="one entry of the kind 'householders' and one"):
        compiled(CensusDeclaration.model_validate(made))
