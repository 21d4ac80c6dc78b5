"""The charge of a declared universe against all neighbours of small inputs, read as runs read them.

Every neighbour of every kind is made: a record added, removed, or changed in any column. The true
norms are those of the change of every query group at every geolevel.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.influence import Norms
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import guarantee_of
from spineflow.tasks.topdown.workload.statement import statement_of

from tests.census_inputs import check_inputs
from tests.tasks.census.conftest import Tables as CountyTables
from tests.tasks.census.declared_neighbours import (
    AREAS,
    COUNTED,
    GAUSSIAN,
    HEADS,
    IDS,
    JOBS,
    MATES,
    OWN,
    PURE,
    REACHED,
    ROWS,
    THROUGH,
    TOLD,
    WORKERS,
    Case,
    Reader,
    Tables,
    cases,
    charged,
    histogram,
    is_refused,
    protected_tables,
    true_norms,
)


@pytest.mark.slow
@pytest.mark.parametrize("family", REACHED)
def test_the_charge_is_reached_by_a_neighbour_and_passed_by_none(
    family: str, tmp_path: Path
) -> None:
    """Threat model: a declaration that understates a record's effect;
    a person with several records.
    """
    case, tables, expected = REACHED[family]
    assert charged(case) == expected
    assert true_norms(case, tables, tmp_path) == expected


@pytest.mark.slow
@settings(
    max_examples=10,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases(), data=st.data())
def test_no_neighbour_changes_more_than_is_charged(
    tmp_path: Path, case: Case, data: st.DataObject
) -> None:
    """Threat model: a declaration that understates a record's effect."""
    try:
        case.settings(GAUSSIAN)
    except ValidationError:
        return
    tables = {
        name: tuple(data.draw(st.lists(st.sampled_from(case.rows(name)), min_size=1, max_size=3)))
        for name in case.columns
    }
    if is_refused(case, tables, tmp_path):
        return
    found, most = true_norms(case, tables, tmp_path), charged(case)
    assert found[0] <= most[0]
    assert found[1] <= most[1]


def without(case: Case, **changed: Any) -> Case:
    """The case with other keys of its universe."""
    return Case(case.own | changed, case.attributes, case.columns, case.contributions)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            without(HEADS, through={"column": "head", "table": "people", "key": "id"}),
            "declare records_per_row in the step to 'people'",
        ),
        (
            without(TOLD, count="n"),
            "declare largest_count, the most that a row may represent",
        ),
        (without(TOLD, largest_count=2), "largest_count without count"),
        (without(OWN, table="areas"), "takes records from 'areas', the table of areas"),
        (
            Case(OWN.own, OWN.attributes, OWN.columns, JOBS.contributions),
            "contributions names 'jobs', which no universe reads",
        ),
    ],
)
def test_a_declaration_without_a_bound_is_refused(case: Case, message: str) -> None:
    """Threat model: a declaration that understates a record's effect;
    a person with several records.
    """
    with pytest.raises(ValidationError, match=message):
        case.settings(GAUSSIAN)


@pytest.mark.parametrize(
    ("case", "tables"),
    [
        (TOLD, {"homes": (("1", "x"), ("1", "x"), ("2", "x")), "people": (("2",),)}),
        (TOLD, {"homes": (("1", "x"), ("01", "x"), ("A", "x")), "people": (("2",),)}),
        (MATES, {"people": (("1", "x", "m"), ("1", "x", "m"), ("1", "x", "f"))}),
        (THROUGH, REACHED["the way to the area"][1] | {"people": (("1",),) * 3}),
        (JOBS, {"jobs": (("1", "a", "x"),) * 3}),
        (JOBS, {"jobs": (("", "a", "x"),)}),
        (WORKERS, REACHED["occupants of several records"][1] | {"jobs": (("1", "9"),) * 3}),
        (ROWS, {"groups": (("a", "x", "4"),)}),
        (
            without(COUNTED, through=THROUGH.own["through"]),
            None,
        ),
    ],
)
def test_an_input_beyond_the_declared_numbers_is_refused(
    case: Case, tables: Tables | None, tmp_path: Path
) -> None:
    """Threat model: a declaration that understates a record's effect."""
    if tables is None:
        # Three records that two rows stand for are one too many for one row of homes.
        columns = {
            "groups": {"home": IDS, "tenure": ("a", "b"), "n": ("1", "2")},
            "homes": {"id": IDS, "area": AREAS},
        }
        case = Case(case.own, case.attributes, columns)
        homes = (("1", "x"), ("2", "x"))
        tables = {"groups": (("1", "a", "2"), ("1", "b", "1")), "homes": homes}
        fits = tables | {"groups": (("1", "a", "1"), ("1", "b", "1"))}
        assert not is_refused(case, fits, tmp_path)
    assert is_refused(case, tables, tmp_path)


def test_a_table_on_the_way_is_not_protected_without_a_bound(tmp_path: Path) -> None:
    """What its records take must then stay the same, and the certificate says so.

    Threat model: a declaration that understates a record's effect.
    """
    case = without(THROUGH, through={"column": "home", "table": "homes", "key": "id"})
    change = statement_of(case.settings(GAUSSIAN)).change[0]
    assert protected_tables(case) == ["people"]
    assert "Records of u take their area, homes.tenure from homes" in change
    assert "in this, the records of homes are the same in both" in change
    assert "a change of one of them is not protected by this guarantee" in change
    _, tables, _ = REACHED["the way to the area"]
    assert charged(case) == true_norms(case, tables, tmp_path) == (2, 2)


def test_one_reference_does_not_decide_how_the_others_are_compared(tmp_path: Path) -> None:
    """A reference that is no number made all be compared as texts, so that `07` was no more `7`."""
    ids = ("07", "08", "09")
    case = Case(
        TOLD.own,
        TOLD.attributes,
        {"homes": {"id": ids, "area": ("x",)}, "people": {"home": ("7", "8", "9", "B")}},
    )
    tables: Tables = {
        "homes": tuple((home, "x") for home in ids),
        "people": (("7",), ("8",), ("9",)),
    }
    found = true_norms(case, tables, tmp_path)
    assert found <= charged(case) == (4, 8)


def test_an_attribute_may_read_a_column_that_is_an_identifier(tmp_path: Path) -> None:
    home = {"column": "home", "levels": {"first": ["1"], "second": ["2"]}}
    case = Case(THROUGH.own, {"home": home}, THROUGH.columns)
    _, tables, _ = REACHED["the way to the area"]
    found = histogram(case, Reader(case.settings(GAUSSIAN).compiled_census, tmp_path), tables)
    assert found is not None
    assert found.tolist() == [[2, 0], [0, 0]]


def test_the_certificate_says_what_a_row_of_records_protects() -> None:
    change = statement_of(COUNTED.settings(GAUSSIAN)).change[0]
    assert "protected is one of these records, not the row" in change
    assert "not the row" not in statement_of(ROWS.settings(GAUSSIAN)).change[0]


def test_columns_computed_from_others_are_charged_or_said() -> None:
    """A dwelling's size, computed from its persons before the input was read.

    Threat model: columns computed from other records.
    """
    told = {"records": 2}
    case = without(OWN, computed_from={"people": told})
    assert charged(case) == (4, 8)
    opposite = without(OWN, computed_from={"people": told | {"opposite": True}})
    assert charged(opposite) == (4, 4)
    said = without(OWN, computed_from={"people": told | {"charged": False}})
    assert charged(said) == (2, 2)
    statement = statement_of(said.settings(GAUSSIAN))
    assert "four times as large a rho" in statement.change[0]
    assert "has rho 4 (about 4)" in statement.together
    guarantee = guarantee_of(said.settings(GAUSSIAN).budget_of("u"))
    assert (guarantee.bounded_rho, guarantee.stated_rho) == (1, 4)
    pure = guarantee_of(said.settings(PURE).budget_of("u"))
    assert (pure.bounded_rho, pure.stated_rho) == (Fraction(1, 2), 2)


@pytest.mark.parametrize("records", range(1, 7))
def test_opposite_changes_add_up_in_areas_of_their_own(records: int) -> None:
    """All ways to place records in two areas: half go from a to b, the others back.

    Threat model: columns computed from other records.
    """
    half, most = records // 2, (0, 0)
    for places in product(range(2), repeat=records):
        moved = np.zeros((2, 2), dtype=int)
        for n, place in enumerate(places):
            moved[place] += (-1, 1) if n < half else (1, -1)
        most = max(most[0], int(abs(moved).sum())), max(most[1], int((moved**2).sum()))
    norms = Norms.of_records(records, opposite=True)
    assert (norms.l1, norms.squared_l2) == most


@pytest.mark.slow
@pytest.mark.usefixtures("rules_only")
def test_who_moves_alone_into_a_vacant_unit_changes_two_units(tables: CountyTables) -> None:
    """Of the Census Edited File: one record of persons, and two of units, one each way.

    Threat model: a person with several records.
    """
    before = check_inputs(**tables.write()).accepted().histograms
    persons, units = tables.persons, tables.units.set_index("MAFID")
    alone = units[(units["RTYPE"].astype(int) == 2) & (units["FINAL_POP"].astype(int) == 1)]
    is_vacant = (units["RTYPE"].astype(int) == 2) & (units["VACS"].astype(int) > 0)
    left = alone.index[0]
    vacant = units[is_vacant & (units["OIDTB"] != alone["OIDTB"].iloc[0])].index[0]
    for column in ("VACS", "FINAL_POP"):
        units.loc[[left, vacant], column] = units.loc[[vacant, left], column].to_numpy()
    persons.loc[persons["MAFID"] == left, "MAFID"] = vacant
    tables.units = units.reset_index()[list(tables.units)]
    after = check_inputs(**tables.write()).accepted().histograms
    census = preset_census("cef_2020")
    for universe, expected in (("persons", (2, 2)), ("units", (4, 4))):
        change = (after[universe] - before[universe]).toarray()
        assert (int(abs(change).sum()), int((change**2).sum())) == expected
        declared = census.universes[universe]
        assert (declared.charge.l1, declared.charge.squared_l2) == (2, 2)
        most = max((declared.charge, declared.stated), key=lambda norms: norms.l1)
        assert (most.l1, most.squared_l2) == expected


def test_certificate_and_ledger_tell_a_record_from_a_person(tmp_path: Path) -> None:
    """Of the redistricting preset: units are charged for one of two that a person may change.

    Threat model: a person with several records.
    """
    tree = {
        "preset": "pl94_2020_us",
        "input": {"persons": "p", "units": "u", "geography": "g"},
        "privacy": {"dataset": "d"},
    }
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    loaded = load_settings(TopdownSettings, tmp_path / "settings.toml", presets=PRESETS)
    budgets = {name: loaded.budget_of(name) for name in ("persons", "units")}
    persons, units = (guarantee_of(budget) for budget in budgets.values())
    assert (persons.neighbors, units.bounded_rho) == ("bounded", units.parameter)
    whole = persons.parameter + 2 * units.parameter
    statement = statement_of(loaded)
    assert f"has rho {whole} (about" in statement.together
    assert "One changed record of persons changes at most 2 records of units" in statement.change[1]
    assert "One changed record of persons changes one record of persons" in statement.change[0]


def test_a_preset_with_a_column_computed_from_persons_says_so(tmp_path: Path) -> None:
    """Persons of the characteristics product take the size of their unit from its record."""
    tree = {
        "preset": "dhc_persons_2020_us",
        "input": {"persons": "p", "units": "u", "geography": "g", "redistricting": "r"},
        "privacy": {"dataset": "d"},
    }
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    loaded = load_settings(TopdownSettings, tmp_path / "settings.toml", presets=PRESETS)
    (change,) = statement_of(loaded).change
    assert "One changed record of persons changes one record of persons." in change
    assert "take their area, units.FINAL_POP from units: in this, the records of units" in change
