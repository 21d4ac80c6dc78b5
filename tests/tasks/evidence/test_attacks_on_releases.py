"""Attacks on releases of a small population: what they find, beside baselines and ceilings."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.counting import People
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.evidence.attacks.rebuilding import grade_reconstruction, rebuilt
from spineflow.tasks.evidence.attacks.release import Release
from spineflow.tasks.evidence.ingest import (
    Draw,
    Places,
    Population,
    PublishedTable,
    RequestedTable,
    count_people,
)
from spineflow.tasks.evidence.methods.publish import generator_of, publish
from spineflow.tasks.evidence.settings import (
    CellKeys,
    Comparison,
    DifferentialPrivacy,
    NoProtection,
    Rounding,
    Suppression,
    Swapping,
)
from spineflow.tasks.evidence.steps import ATTACKS

SCHEMA = Schema(
    "persons",
    ("residence", "sex", "age", "kind"),
    (("house", "other"), ("f", "m"), tuple("abcde"), ("x", "y", "z")),
)
N_BLOCKS = 60


def population(seed=1, n_households=400):
    draws = np.random.default_rng(seed)
    size = draws.integers(1, 5, n_households)
    household = np.repeat(np.arange(n_households), size)
    area = draws.integers(0, N_BLOCKS, n_households)[household]
    levels = {
        "residence": np.zeros(len(household), dtype=int),
        "sex": draws.integers(0, 2, len(household)),
        "age": draws.integers(0, 5, len(household)),
        "kind": draws.choice(3, len(household), p=[0.7, 0.2, 0.1]),
    }
    people = People(area, SCHEMA.cells(levels), household)
    blocks, tracts = np.arange(N_BLOCKS), np.arange(N_BLOCKS) // 6
    # Towns cut through tracts; the last areas are in none.
    towns = np.where(np.arange(N_BLOCKS) < 55, (np.arange(N_BLOCKS) + 1) // 8, -1)
    none = np.full(10, -1)
    places = {
        "tract": Places("tract", tracts, tuple(map(str, range(10))), None, none),
        "block": Places("block", blocks, tuple(map(str, blocks)), "tract", tracts),
        "town": Places("town", towns, tuple(map(str, range(7))), None, np.full(7, -1)),
    }
    whole = np.ones(SCHEMA.n_cells, dtype=bool)
    asked = [
        ("total", "total", {}, "town"),
        *(
            (name, query, where, level)
            for level in ("tract", "block")
            for name, query, where in (
                ("total", "total", {}),
                ("kinds", "kind", {}),
                *((f"of {kind}", "sex * age", {"kind": [kind]}) for kind in "xyz"),
            )
        ),
    ]
    tables = []
    for name, text, where, level in asked:
        query = marginal_query(SCHEMA, text)
        mask = SCHEMA.cells_where(where) if where else whole
        tables.append(RequestedTable(name, query, mask, places[level]))
    kind, known = (marginal_query(SCHEMA, text).row_of_cell for text in ("kind", "sex * age"))
    agree = np.zeros(SCHEMA.n_cells, dtype=bool)
    return Population(people, tables, [places["tract"]], kind, agree, known, kind)


POPULATION = population()


def release(method, *, tables=None, others=None, name="own", **comparison):
    made = tables
    if made is None:
        made, _ = publish(POPULATION, method, 0, generator_of(1, name, "0", "1"))
    return Release(
        Comparison(**comparison),
        Draw(name, 0, 1),
        method,
        made,
        POPULATION,
        others or (lambda people: publish(people, method, 0, generator_of(1, name, "0", "2"))[0]),
    )


def figures(attack, of):
    rows = (
        grade_reconstruction(of, [rebuilt(of)])
        if attack == "reconstruction"
        else ATTACKS[attack](of)
    )
    return {(measure, group): value for _, measure, group, value, *_ in rows}


NOTHING = NoProtection(kind="nothing")


def test_true_tables_of_all_kinds_give_everybody_back():
    found = figures("reconstruction", release(NOTHING))
    assert found["reconstruction: agreement", "all"] == 1
    assert found["reconstruction: areas with one solution", "all"] == 1
    assert found["reconstruction: rebuilt people who can differ", "all"] == 0
    unique = "unique, not of the most common kind"
    assert found["reconstruction: precision of who is who", unique] == 1
    assert found["baseline of reconstruction: precision of who is who", unique] < 0.2
    everybody = "reconstruction: precision of who is who", "all"
    assert found[everybody] > found[f"baseline of {everybody[0]}", "all"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        Rounding(kind="rounding", bases=(3,)),
        CellKeys(kind="cell_keys"),
        Suppression(kind="suppression", thresholds=(3,)),
        Swapping(kind="swapping", rates=("1/2",)),
    ],
    ids=lambda method: method.kind,
)
def test_protected_tables_give_fewer_people_back(method):
    found = figures("reconstruction", release(method))
    assert found["reconstruction: agreement", "all"] < 0.95
    assert found["reconstruction: areas without a solution found", "all"] == 0
    if method.kind != "swapping":
        assert found["reconstruction: rebuilt people who can differ", "all"] > 0.1
    assert found["reconstruction: areas whose tables contradict each other", "all"] == 0


def test_swaps_are_found_among_people_who_are_one_of_their_kind():
    method = Swapping(kind="swapping", rates=("1/2",))
    found = figures("swap_detection", release(method))
    linked = found["swap_detection: people who are linked", "all"]
    precision = found["swap_detection: precision of who was swapped", "all"]
    assert linked == 0 or precision == 1
    assert not figures("swap_detection", release(NOTHING))


PRIVATE = DifferentialPrivacy(kind="differential_privacy", rho=("1/10",))


def with_noise(sigma):
    """Tables of whoever they are asked about, with Gaussian noise."""

    def answers(people):
        draws = np.random.default_rng(5)
        exact = count_people(people.people, people.tables)
        noisy = {key: own + draws.normal(0, sigma, own.shape) for key, own in exact.items()}
        return {key: PublishedTable.without_bounds(own) for key, own in noisy.items()}

    return answers


def test_records_of_true_tables_are_told_with_certainty():
    found = figures("membership", release(NOTHING))
    for what in ("which of two records, right", "true positives at 1 % false ones"):
        assert found[f"membership: {what}", "all"] == 1
        assert found[f"baseline of membership: {what}", "all"] < 1
    for group in ("all", "not the most common of the others"):
        attribute = "membership: attribute of a person, all others known, right", group
        assert found[attribute] == 1
        assert found[f"baseline of {attribute[0]}", group] < 0.9


def test_records_under_privacy_stand_beside_the_bound_of_the_guarantee():
    tables = with_noise(0)(POPULATION)
    found = figures("membership", release(PRIVATE, tables=tables, others=with_noise(9.0)))
    # mu = sqrt(2 rho) = 0.447: the facts of mu-GDP.
    for what, bound in (
        ("true positives at 1 % false ones", 0.030),
        ("which of two records, right", 0.589),
        ("area under the curve", 0.624),
    ):
        told = found[f"membership: {what}, bound of the guarantee", "all"]
        assert told == pytest.approx(bound, abs=6e-4)


def test_a_release_without_noise_breaks_its_promise():
    tables = with_noise(0)(POPULATION)
    weak = DifferentialPrivacy(kind="differential_privacy", rho=("1/10000",))
    found = figures("membership", release(weak, tables=tables, others=with_noise(0.01)))
    right = "membership: which of two records, right"
    assert found[right, "all"] > found[f"{right}, bound of the guarantee", "all"]
