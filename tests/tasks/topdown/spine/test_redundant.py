"""Measurements of only children are named, with what they cost, where nothing gives them back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.fits import redundant_spending_of_geography
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.settings import TopdownSettings


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=2_000)
    (folder / "settings.toml").write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "d"\n'
        '[geography]\nspine = "conventional"\nbypass = false\n[run]\nuniverses = ["persons"]\n'
    )
    return folder / "settings.toml"


def settings_of(file: Path, *overrides: str) -> TopdownSettings:
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


def test_a_state_that_is_one_county_is_measured_in_vain(county: Path) -> None:
    settings = settings_of(county)
    first, second, *_ = redundant_spending_of_geography(settings)
    budget = settings.budget_of("persons")
    for sentence, geolevel, above in ((first, "State", "US"), (second, "County", "State")):
        cost = float(budget.total * budget.geolevel_shares[geolevel])
        assert f"persons: 1 of 1 geounits of {geolevel} are the only one in theirs of {above}" in (
            sentence
        )
        assert f"for rho {cost:.4g} each" in sentence
        assert "geography.bypass = true" in sentence


@pytest.mark.parametrize("override", ["geography.bypass=true", "run.estimator=full_information"])
def test_nothing_is_named_where_nothing_is_discarded(county: Path, override: str) -> None:
    assert redundant_spending_of_geography(settings_of(county, override)) == ()


def test_a_budget_can_be_shown_before_there_is_a_geography(county: Path) -> None:
    assert redundant_spending_of_geography(settings_of(county, "input.geography=none.txt")) == ()
    assert isinstance(settings_of(county).budget_of("persons").total, Fraction)
