"""No setting of products of households does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from spineflow.tasks.supplemental_dhc.product import SUPPLEMENTAL

from tests.flows.household_input import write_detailed_households, write_households
from tests.flows.idle_settings import (
    Search,
    Tree,
    merged,
    refuse_idle,
    refuse_unconsidered,
    run_to_tables,
)

TABLES = {
    "persons": "persons.parquet",
    "units": "units.parquet",
    "geography": "grfc.txt",
    "confidential": False,
}
PRIVACY = {"dataset": "people", "seed": 1}
"""Of the people whose groups are released."""

HOUSEHOLDS_SEARCH = Search(
    DETAILED_HOUSEHOLDS,
    {
        "mechanism.definition": ("zcdp", "puredp"),
        "mechanism.max_race_codes": (8, 3),
        "mechanism.budgets": (
            {"t3": {"COUNTY": {"2": "3"}}},
            {"t4": {"STATE": {"1": "3"}}},
            {"t3": {"PR-COUNTY": {"2": "3"}}},
        ),
        "mechanism.thresholds": (
            {"t3": {"COUNTY": {"2": [5, 10, 20]}}},
            {"t4": {"STATE": {"1": [5]}}},
            {"t3": {"PR-COUNTY": {"2": [5, 10, 20]}}},
            {"t4": {"AIANNH": {"1": [5]}}},
        ),
        "mechanism.confidence": ("99/100",),
        "mechanism.allow_negative_counts": (False,),
        "mechanism.run_us": (False,),
        "mechanism.run_pr": (True,),
        "mechanism.states": (["44"], ["09"]),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
    },
    run_to_tables(DETAILED_HOUSEHOLDS),
    excused={
        f"input.{name}": "where the data, the parameters and the earlier release are"
        for name in ("parameters", "persons", "units", "geography", "region_names", "groups")
    },
    by_data={
        "mechanism.definition": "may say what config.json says",
        "mechanism.max_race_codes": "may say what config.json says",
        "mechanism.states": "may name the only state there is",
    },
)
HOUSEHOLDS_BASE: Tree = {
    "input": {**TABLES, "parameters": "params", "groups": "groups"},
    "privacy": PRIVACY,
}
HOUSEHOLDS_BASES: dict[str, Tree] = {
    "as configured": HOUSEHOLDS_BASE,
    "pure": merged(HOUSEHOLDS_BASE, {"mechanism": {"definition": "puredp"}}),
}

SUPPLEMENTAL_SEARCH = Search(
    SUPPLEMENTAL,
    {
        "geography.levels": (["State"], ["US", "State", "County"], ["County", "State"]),
        "mechanism.truncation": ({"PH3": 1}, {"PH6": 1}, {"PH7": 2}),
        "mechanism.budgets": (
            {"PH3": {"State": {"*": "1/10"}}},
            {"PH7": {"State": {"A-G": "1/10"}}},
        ),
        "mechanism.margins": (
            {"PH3": {"State": {"A-G": 30}}},
            {"PH8_denom": {"County": {"*": 30}}},
        ),
        "mechanism.confidence": ("99/100",),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
    },
    run_to_tables(SUPPLEMENTAL),
    excused={f"input.{name}": "where the data are" for name in ("persons", "units", "geography")},
)
SUPPLEMENTAL_BASE: Tree = {"input": TABLES, "privacy": PRIVACY}
SUPPLEMENTAL_BASES: dict[str, Tree] = {
    "production": {**SUPPLEMENTAL_BASE, "preset": "supplemental_dhc_2020_us"},
    "margins": merged(
        SUPPLEMENTAL_BASE,
        {
            "geography": {"levels": ["State", "County"]},
            "mechanism": {
                "margins": {
                    "PH3": {"State": {"*": 40, "A-G": 20}},
                    "PH7": {"County": {"*": 50}},
                    "PH8_denom": {"County": {"*": 60}},
                }
            },
        },
    ),
    "budgets": merged(
        SUPPLEMENTAL_BASE,
        {
            "geography": {"levels": ["State"]},
            "mechanism": {"budgets": {"PH6": {"State": {"*": "1/5"}}}},
        },
    ),
}

SEARCHES: dict[str, tuple[Search, dict[str, Tree], Callable[[Path], object]]] = {
    "detailed-households": (HOUSEHOLDS_SEARCH, HOUSEHOLDS_BASES, write_detailed_households),
    "supplemental-dhc": (SUPPLEMENTAL_SEARCH, SUPPLEMENTAL_BASES, write_households),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_is_toggled_or_excused(name: str) -> None:
    refuse_unconsidered(SEARCHES[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_no_setting_does_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    search, bases, write = SEARCHES[name]
    write(tmp_path)
    refuse_idle(search, bases, tmp_path, monkeypatch, NEVER_EFFECTIVE)


NEVER_EFFECTIVE = {"mechanism.run_us", "mechanism.run_pr", "mechanism.states"}
"""The finished run of groups has one pass and one state; all others are refused."""
