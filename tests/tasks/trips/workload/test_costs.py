"""Budgets for several levels at once: the shares that are told can be set, and do what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.ingest.ingest import public_shape
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.costs import needed_split
from spineflow.tasks.trips.workload.plan import Plan, make_plan

WANTED = {"2": 15, "origin municipality, destination municipality": 30}


def plan_of(folder: Path, *overrides: str) -> Plan:
    file = folder / "settings.toml"
    if not file.exists():
        generate_country(folder, CountrySize(2, 4, 20, 100, 5_000))
    settings = load_settings(TripsSettings, file, presets=folder, overrides=overrides)
    return make_plan(settings, public_shape(settings).tree)


@pytest.mark.parametrize("name", ["inftda", "inftda_full_information"])
def test_a_split_that_is_told_can_be_set_and_needs_no_more(name: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, f"mechanism.name={name}")
    told = needed_split(plan, WANTED)
    total, shares = re.search(r"at rho (\S+) with mechanism.shares = (\[.*?\])", told).groups()
    designed = plan_of(tmp_path, f"mechanism.name={name}", f"mechanism.shares={shares}")
    assert len(json.loads(shares)) == len(designed.levels)
    again = needed_split(designed, WANTED)
    assert f"at rho {total} " in again
    assert again.endswith(f"the shares of now need {total}")
    now = float(told.rpartition(" ")[2])
    assert float(total) < now


def test_combining_all_levels_needs_less(tmp_path: Path) -> None:
    def total(name: str) -> float:
        told = needed_split(plan_of(tmp_path, f"mechanism.name={name}"), WANTED)
        return float(re.search(r"at rho (\S+) ", told).group(1))

    assert total("inftda_full_information") < total("inftda")


def test_where_there_is_no_split(tmp_path: Path) -> None:
    assert needed_split(plan_of(tmp_path, "mechanism.name=gaussian_leaves"), WANTED) is None
    assert needed_split(plan_of(tmp_path, "mechanism.name=stability_histogram"), WANTED) is None
    with pytest.raises(InputRefused, match="name a measured level"):
        needed_split(plan_of(tmp_path), {"7": 3, "1": 2})
