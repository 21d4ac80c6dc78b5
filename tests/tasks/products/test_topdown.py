"""Every sentence of topdown's certificate follows the setting that makes it true."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.products.certificate import Facts
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.measurement.measure import public_plan
from spineflow.tasks.topdown.release.report import facts_of
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import refuse_no_spine

from tests.certificates import certificate_text

TABLES = """\
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
"""
SHARES = {"US": "1/4", "State": "1/4", "County": "1/4", "Block": "1/4"}


def load(folder: Path, *overrides: str, preset: str = "pl94_2020_us", more: str = ""):
    file = folder / "settings.toml"
    file.write_text(f'preset = "{preset}"\n{TABLES}{more}', encoding="utf-8")
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


def without(settings: TopdownSettings, geolevel: str) -> TopdownSettings:
    """The settings with a spine of four geolevels less one."""
    shares = {name: share for name, share in SHARES.items() if name != geolevel}
    n = len(shares)
    budget = settings.budget["persons"]
    changed = budget.model_copy(update={"geolevels": dict.fromkeys(shares, Fraction(1, n))})
    return settings.model_copy(update={"budget": {**settings.budget, "persons": changed}})


def said(settings: TopdownSettings, facts: Facts) -> str:
    """The text of a certificate of these settings."""
    return certificate_text(settings, public_plan(settings), facts)


def text_of(settings: TopdownSettings) -> str:
    return said(settings, facts_of(settings))


BY_TYPE = "per facility of each type"
TOTALS = "the population of every state is released without noise"
WITHIN = "the person moves within the same state"
ADD_UP = "The losses of persons and units add up"


def test_a_schema_without_types_has_no_bounds_by_type(tmp_path: Path) -> None:
    """Threat model: a certificate that claims too much."""
    geolevels = ("US", "State", "County", "Tract", "Block_Group", "Block")
    more = '[workload.persons]\nattributes = ["votingage", "hispanic"]\n'
    more += "[budget.persons.queries]\n"
    more += "".join(f'{name} = {{ total = "1" }}\n' for name in geolevels)
    more += '[workload.persons.passes.other]\nleast_squares = [["all"]]\nrounder = [["total"]]\n'
    text = text_of(load(tmp_path, more=more))
    assert BY_TYPE not in text
    assert "at least as many persons as facilities" in text
    assert "votingage, hispanic, and its block" in text and "cenrace" not in text


def test_a_spine_without_states_is_refused_and_never_certified(tmp_path: Path) -> None:
    """Threat model: a certificate that claims too much."""
    settings = without(load(tmp_path), "State")
    with pytest.raises(InputRefused, match=r"budget\.persons\.geolevels has no State"):
        refuse_no_spine(settings.model_copy(update={"geography": conventional(settings)}))
    text = text_of(settings)
    assert TOTALS not in text and WITHIN not in text
    assert "the population of each state" not in text
    assert "the person moves anywhere" in text


def conventional(settings: TopdownSettings):
    return settings.geography.model_copy(update={"spine": "conventional"})


@pytest.mark.parametrize(
    ("override", "why", "how"),
    [
        ("privacy.infinite=true", "noise was switched off", "were measured without noise"),
        ("privacy.seed=1", "noise can be repeated", "noise that can be repeated from the seed"),
    ],
)
def test_runs_that_protect_nobody_guarantee_nothing(tmp_path, override, why, how) -> None:
    """Threat model: a certificate that claims too much."""
    text = text_of(load(tmp_path, "input.confidential=false", override))
    assert f"Nothing is guaranteed: {why}" in text and how in text
    for absent in ("The guarantee compares", "17.14", ADD_UP, "random noise of a known"):
        assert absent not in text, absent
