"""Every sentence of topdown's certificate follows the setting that makes it true."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.special import ndtr, ndtri
from spineflow.tasks.products.certificate import Facts
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.measurement.charge import public_plan
from spineflow.tasks.topdown.release.certificate import facts_of, facts_of_run
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import refuse_no_spine
from spineflow.tasks.topdown.workload.privacy_curve import scope_of_figures

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


@pytest.mark.soak(2)
def test_exact_figures_of_the_spine_stand_beside_the_older_ones(cut_county) -> None:
    run, seeded = cut_county
    privacy = seeded.privacy.model_copy(update={"seed": None})
    settings = seeded.model_copy(update={"privacy": privacy})
    assert settings.is_private
    older, whole = text_of(settings), said(settings, facts_of_run(run, settings))
    first, told, rest = whole.partition("The epsilon above follows from rho alone.")
    # Of what the figures are stands once, with the first of them.
    scope, stated = " ".join(scope_of_figures(settings)), older.removeprefix(first)
    assert scope in rest and scope in stated
    at_deltas = "At several deltas"
    assert told and at_deltas in first and older.startswith(first.partition(at_deltas)[0])
    assert rest.endswith(stated.partition(scope)[2])
    rows = re.findall(r"\| (persons|units) \| 1e-10 \| [\d.]+ \| (16\.47|2\.37) \|", first)
    assert [row[0] for row in rows] == ["persons", "units"]
    assert "16.47" not in older
    assert "was chosen by this exact figure" not in whole
    section = settings.budget["units"].model_copy(
        update={"epsilon": Fraction("2.47"), "accounting": "exact"}
    )
    declared = settings.model_copy(update={"budget": {**settings.budget, "units": section}})
    sentence = "The rho of units was chosen by this exact figure, as the largest for which it is "
    assert f"{sentence}at most 2.47." in said(declared, facts_of_run(run, declared))
    # On every path of the spine as without bypass, or in the worst one a little more.
    lacked = "(occupancy of a record|area within US|area within Block Group)"
    parts = re.findall(rf"\| units \| {lacked} \| [\d.]+ \| (2\.3[67]|0\.782) \|", first)
    assert [part[0].split()[-1] for part in parts] == ["record", "US", "Group"]
    told_apart = re.search(r"is true: (\d+) % for persons \(.*?\) and (\d+) % for units", whole)
    for percent, rho in zip(map(int, told_apart.groups()), (2.55623, 0.0749437), strict=True):
        assert percent == math.ceil(100 * float(ndtr(math.sqrt(rho / 2))))
    found = re.search(
        r"true in at most (\d+) of 100 for persons \(.*?\) and in at most (\d+) of", whole
    )
    # Of continuous Gaussians: P(Z > z_0.95 - sqrt(2 rho)).
    limit = [float(ndtr(ndtri(0.05) + math.sqrt(2 * rho))) for rho in (2.55623, 0.0749437)]
    for percent, least in zip(map(int, found.groups()), limit, strict=True):
        assert 100 * least <= percent < 100 * least + 4
