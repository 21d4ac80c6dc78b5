"""Households: the figures of the 2020 production run, its tables, and the curves of one change."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_specification
from spineflow.tasks.detailed_groups.settings import DetailedHouseholdsSettings
from spineflow.tasks.detailed_groups.workload.budgets import level_budgets
from spineflow.tasks.detailed_groups.workload.guarantee import (
    curve_of_change,
    exact_curve,
    pass_plan,
    tabulation_plan,
)
from spineflow.tasks.detailed_groups.workload.parameters import (
    Parameters,
    mechanism_parameters,
    read_specification,
    thresholds_key,
)
from spineflow.tasks.detailed_groups.workload.regions import REGION_TYPES
from spineflow.tasks.detailed_groups.workload.specification import SpecificationError
from spineflow.tasks.detailed_groups.workload.tabulations import HOUSEHOLD_TABULATIONS, N_FINEST
from spineflow.tasks.noise.quantiles import margin
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.validation.detailed_groups.tables import TENURES, TYPES

STATE_TYPES = ("USA", "STATE", "PR-STATE")


def budget_of_2020(region_type: str, level: int) -> str:
    """As `config.json` of the production run has it, for type and tenure alike."""
    if level == 1:
        return "0" if region_type == "AIANNH" else "0.006915"
    return "1.920800" if region_type in STATE_TYPES else "0.142869"


def thresholds_of_2020(region_type: str, level: int) -> list[int]:
    if level == 1 and region_type != "AIANNH":
        return [4971, 19971, 149971 if region_type in STATE_TYPES else 149970]
    return [471, 971, 6971] if region_type in STATE_TYPES else [971, 4971, 19971]


def config_of_2020() -> dict[str, object]:
    config: dict[str, object] = {
        "max_race_codes": 8,
        "allow_negative_counts": True,
        "run_us": True,
        "run_pr": True,
        "state_filter_us": ["44"],
        "privacy_defn": "zcdp",
    }
    levels = [(name, level) for name in REGION_TYPES for level in (1, 2)]
    for keys in HOUSEHOLD_TABULATIONS.values():
        for name, level in levels:
            config[keys.budget(name, level)] = Fraction(budget_of_2020(name, level))
        config[keys.thresholds] = {
            thresholds_key(name, level): thresholds_of_2020(name, level)[: keys.n_thresholds]
            for name, level in levels
        }
    return config


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    return mechanism_parameters(config_of_2020(), tabulations=tuple(HOUSEHOLD_TABULATIONS))


@pytest.fixture(scope="module")
def specification(tmp_path_factory: pytest.TempPathFactory):
    """One of which, as of that of 2020, a person is in nine groups of a level."""
    folder = tmp_path_factory.mktemp("specification")
    generate_specification(folder, regional=9, detailed=40)
    return read_specification(str(folder))


def test_the_losses_are_those_of_2020(parameters: Parameters) -> None:
    assert list(parameters.budgets) == ["t3", "t4"]
    for name in parameters.budgets:
        own = parameters.of(name)
        assert own.total_of("us") == Fraction("4.447651")
        assert own.total_of("pr") == Fraction("2.377067")
        assert ("AIANNH", 1) not in own.budgets[name]
    assert parameters.total_of("us") == Fraction("8.895302") == parameters.total
    for name in parameters.budgets:
        guarantee = tabulation_plan(parameters, name).promised
        assert guarantee.parameter == Fraction("4.447651")
        # One household changed costs twice as much, and two of them, as of who moves, eight times.
        assert guarantee.bounded_rho == 2 * Fraction("4.447651")
        assert guarantee.stated_rho == 8 * Fraction("4.447651")


@pytest.mark.parametrize("region_pass", ["us", "pr"])
def test_the_presets_are_the_production_runs_of_2020(
    region_pass: str, parameters: Parameters, tmp_path: Path
) -> None:
    source = tmp_path / "settings.toml"
    source.write_text(
        f'preset = "detailed_households_2020_{region_pass}"\n[input]\nparameters = "."\n'
        'persons = "persons.parquet"\nunits = "units.parquet"\ngeography = "grfc.txt"\n'
        'groups = "groups"\n[privacy]\ndataset = "x"\n'
        + '[mechanism]\nstates = ["44"]\n'
        * (region_pass == "us")
    )
    settings = load_settings(DetailedHouseholdsSettings, source, presets=PRESETS)
    for name in HOUSEHOLD_TABULATIONS:
        own = mechanism_parameters(settings.mechanism.config, tabulations=[name])
        assert own.passes == (region_pass,)
        assert own.total_of(region_pass) == parameters.of(name).total_of(region_pass)
        due = parameters.budgets_of(name, region_pass)
        assert list(own.budgets_of(name, region_pass).items()) == list(due.items())
        of_2020, thresholds = parameters.thresholds[name], own.thresholds[name]
        assert thresholds == {level: of_2020[level] for level in thresholds}
        assert set(thresholds) >= set(own.budgets[name])


def test_variances_and_margins_are_those_of_2020(parameters: Parameters, specification) -> None:
    due = {Fraction("0.006915"): 50, Fraction("1.9208"): 3, Fraction("0.142869"): 11}
    seen = set()
    for name in parameters.budgets:
        for region_pass in parameters.passes:
            for budget in level_budgets(parameters, specification, name, region_pass).values():
                assert budget.stability == 9
                noise = budget.second_stage
                assert noise == budget.of_released(is_total_only=True)
                assert budget.noise(Fraction(1)).parameter == 9 / (2 * budget.budget)
                assert margin(noise, Fraction(95, 100)) == due[budget.budget]
                seen.add(budget.budget)
    assert seen == set(due)


def test_thresholds_are_as_many_as_the_tables_need() -> None:
    config = config_of_2020()
    type_keys, tenure_keys = HOUSEHOLD_TABULATIONS.values()
    swapped = config | {tenure_keys.thresholds: config[type_keys.thresholds]}
    with pytest.raises(SpecificationError, match="must be a list of 1 number;"):
        mechanism_parameters(swapped, tabulations=[tenure_keys.name])
    mechanism_parameters(swapped, tabulations=[type_keys.name])


def test_curves_have_the_rho_that_is_charged(parameters: Parameters, specification) -> None:
    for region_pass in parameters.passes:
        for is_bounded in (False, True):
            curve = exact_curve(parameters, specification, region_pass, is_bounded=is_bounded)
            assert curve.rho == (1 + is_bounded) * parameters.total_of(region_pass)
            assert pass_plan(parameters, region_pass).loss == parameters.total_of(region_pass)
    for name in parameters.budgets:
        curve = curve_of_change(parameters.of(name), specification)
        assert curve.rho == tabulation_plan(parameters, name).promised.bounded_rho


PRODUCTION = {
    "t3": {
        0: dict.fromkeys((1, 2, 3, 4, 5), 0),
        1: {1: 1, 2: 1, 3: 1, 4: 6, 5: 6},
        2: {1: 2, 2: 3, 3: 3, 4: 7, 5: 8},
        3: {1: 2, 2: 4, 3: 5, 4: 7, 5: 8},
    },
    "t4": {0: dict.fromkeys((1, 2, 3), 0), 1: {1: 1, 2: 2, 3: 3}},
}
"""The cell of each type, and of each tenure, in the tables of the production program."""


@pytest.mark.parametrize("name", HOUSEHOLD_TABULATIONS)
def test_cells_and_sums_are_those_of_the_production_program(name: str) -> None:
    own, known = HOUSEHOLD_TABULATIONS[name], {"t3": TYPES, "t4": TENURES}[name]
    positions = np.unravel_index(np.arange(N_FINEST), (5, 3))[name == "t4"]
    for table, cells in PRODUCTION[name].items():
        measured = own.labels_of_cells(table).tolist()
        assert measured == sorted(set(cells.values()))
        assert own.n_cells[table] == len(measured)
        for cell, position in enumerate(positions.tolist()):
            assert measured[own.cell_of[table, cell]] == cells[position + 1]
        rows = {label: (start, stop) for label, start, stop in own.rows[table].tolist()}
        assert rows == known.rows[table]
    assert [len(rows) - 1 for rows in own.rows] == ([0, 2, 6, 8] if name == "t3" else [0, 3])
    assert own.names == known.tables
