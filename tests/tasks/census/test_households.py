from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.households import (
    UNIT_COLUMNS,
    Members,
    disagreements,
    incoherent,
    unit_columns,
)


def household(*members: tuple[int, int, int]) -> Members:
    """One household: RELSHIP, age and sex of each member."""
    relationship, age, sex = (np.array(values) for values in zip(*members, strict=True))
    n = len(members)
    return Members(np.zeros(n, int), relationship, age, sex, np.ones(n, int), np.full(n, 7))


def told(*members: tuple[int, int, int]) -> dict[str, int]:
    return {name: int(values[0]) for name, values in unit_columns(household(*members), 1).items()}


MAN, WOMAN = 1, 2


@pytest.mark.parametrize(
    ("members", "due"),
    [
        ([(20, 70, MAN)], "HHT 4 HHT2 9 CPLT 0 UPART 0 MULTG 0 PAOC 4 PAC 4 P60 1 P65 1 P75 0"),
        ([(20, 17, WOMAN)], "HHT 6 HHT2 5 CPLT 0 P18 1 HHLDRAGE 17 HHSEX 2 FINAL_POP 1"),
        ([(20, 40, MAN), (21, 39, WOMAN)], "HHT 1 HHT2 2 CPLT 1 UPART 5 MULTG 0 PAOC 4"),
        (
            [(20, 40, MAN), (21, 39, WOMAN), (25, 5, MAN), (26, 6, MAN)],
            "HHT 1 HHT2 1 CPLT 1 MULTG 1 PAOC 3 PAC 3 P18 2",
        ),
        ([(20, 30, WOMAN), (24, 30, WOMAN)], "HHT 7 HHT2 4 CPLT 4 UPART 3"),
        ([(20, 30, MAN), (24, 30, MAN), (27, 17, MAN)], "HHT 2 HHT2 3 CPLT 4 UPART 1 PAOC 2"),
        ([(20, 30, WOMAN), (22, 30, MAN), (36, 3, MAN)], "HHT 7 HHT2 4 UPART 4 PAOC 4 PAC 1"),
        ([(20, 30, MAN), (22, 30, WOMAN), (25, 18, MAN)], "HHT 2 HHT2 4 UPART 2 PAOC 4 P18 0"),
        ([(20, 50, WOMAN), (25, 25, MAN), (30, 4, MAN)], "HHT 3 HHT2 7 MULTG 2 PAOC 4 PAC 1"),
        ([(20, 50, WOMAN), (30, 4, MAN), (30, 4, MAN)], "HHT 3 MULTG 1"),
        ([(20, 50, WOMAN), (29, 75, MAN), (25, 4, MAN)], "HHT2 6 MULTG 2 P60 1 P65 1 P75 1"),
        ([(20, 50, MAN), (31, 64, WOMAN)], "HHT 2 HHT2 11 CPLT 5 UPART 5 P60 1 P65 0"),
        ([(20, 50, WOMAN), (34, 50, MAN)], "HHT 7 HHT2 8 CPLT 5"),
        ([(20, 50, MAN), (35, 15, MAN), (35, 2, MAN)], "HHT 5 HHT2 12 PAOC 4 PAC 3 MULTG 1"),
    ],
)
def test_columns_of_one_household(members, due) -> None:
    names = due.split()[::2]
    found = told(*members)
    assert set(found) == set(UNIT_COLUMNS)
    assert {name: found[name] for name in names} == dict(
        zip(names, map(int, due.split()[1::2]), strict=True)
    )


def test_units_without_members_have_zeros_and_members_stay_apart() -> None:
    members = Members(
        np.array([2, 0, 2]),
        np.array([21, 20, 20]),
        np.array([33, 80, 34]),
        np.array([1, 1, 2]),
        np.array([1, 2, 1]),
        np.array([5, 6, 7]),
    )
    found = unit_columns(members, 4)
    assert found["FINAL_POP"].tolist() == [1, 0, 2, 0]
    assert found["HHLDRAGE"].tolist() == [80, 0, 34, 0]
    assert found["HHRACE"].tolist() == [6, 0, 7, 0]
    assert found["HHSPAN"].tolist() == [2, 0, 1, 0]
    assert all((values[[1, 3]] == 0).all() for values in found.values())


@pytest.mark.parametrize(
    ("members", "rule"),
    [
        ([(21, 40, MAN)], "one householder"),
        ([(20, 40, MAN), (20, 40, MAN)], "one householder"),
        ([(20, 40, MAN), (21, 40, WOMAN), (22, 40, WOMAN)], "no more than one spouse"),
        ([(20, 14, MAN)], "15 or older"),
        ([(20, 40, MAN), (21, 40, MAN)], "sex of a spouse"),
        ([(20, 40, MAN), (24, 40, WOMAN)], "sex of a spouse"),
        ([(20, 40, MAN), (38, 40, WOMAN)], "20 to 36"),
    ],
)
def test_incoherent_households_are_counted(members, rule) -> None:
    (broken,) = incoherent(household(*members), 1).items()
    assert rule in broken[0] and broken[1] == 1


def test_coherent_households_break_nothing_and_differences_are_counted() -> None:
    members = household((20, 40, MAN), (24, 40, MAN), (25, 3, WOMAN))
    assert incoherent(members, 3) == {}
    made = unit_columns(members, 3)
    own = {"HHT": np.array([1, 0, 0]), "PAOC": np.array([1, 4, 4]), "TEN": np.zeros(3)}
    assert disagreements(own, made) == {"HHT": 1, "PAOC": 2}
