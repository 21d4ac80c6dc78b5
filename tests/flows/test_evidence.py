"""The evidence flow: methods and attacks on a generated county, from settings to the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import GENERATED, write_demo
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.ingest.generate import generate_country

from tests.flows.in_process import judged_once

METHODS = """
[methods.nothing]
kind = "nothing"
[methods.rounding]
kind = "rounding"
bases = [5]
[methods.swapping]
kind = "swapping"
rates = ["1/10"]
[methods.private]
kind = "differential_privacy"
rho = ["1"]
"""
COLUMNS = ["method", "strength", "draw", "level", "measure", "group", "value", "low", "high"]


@pytest.fixture(autouse=True, scope="module")
def one_opinion() -> Iterator[None]:
    """Our own code alone judges the input, which is sound where a run goes on."""
    with judged_once():
        yield


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    file = write_demo(GENERATED["evidence"], folder / "demo", seed=4)
    text = file.read_text(encoding="utf-8").replace("draws = 1", "draws = 2\nblocks = 12")
    file.write_text(text + METHODS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def finished(settings_file):
    evidence = product("evidence")
    settings = evidence.load(settings_file)
    run = prepare(settings, settings_file.parent / "run")
    call_stages(run, settings)
    return run, settings


@pytest.mark.soak(16)
def test_every_release_has_its_figures_beside_baselines_and_ceilings(finished):
    run, _ = finished
    table = pd.read_csv(run.root / "report" / "evidence.csv", dtype={"strength": str})
    assert list(table.columns) == COLUMNS
    own = table[~table["method"].isin(["baseline", "ceiling"])]
    draws = own.groupby("method")["draw"].max().to_dict()
    assert draws == {"nothing": 1, "rounding": 2, "swapping": 2, "private": 2}
    errors = own[(own["measure"] == "mean absolute error") & (own["group"] == "all")]
    by_method = errors[errors["level"] == "Block"].groupby("method")["value"].mean()
    assert by_method["nothing"] == 0
    assert (by_method.drop("nothing") > 0).all()
    keys = ["level", "measure", "group"]
    baselines = table[table["method"] == "baseline"]
    ceilings = table[table["method"] == "ceiling"]
    assert len(baselines)
    # Each baseline of what is found in true tables has a ceiling; swaps are not found there.
    shared = baselines[~baselines["measure"].str.startswith("swap_detection")]
    assert len(shared.merge(ceilings, on=keys)) == len(shared)
    agreement = table[
        (table["measure"] == "reconstruction: agreement") & (table["group"] == "all")
    ].set_index("method")["value"]
    assert agreement["nothing"].min() > 0.9 > agreement["private"].max()
    right = "membership: which of two records, right"
    told = table[table["measure"] == right].groupby("method")["value"].mean()
    assert 0.4 < told["private"] < told["nothing"] == 1
    bound = table[table["measure"] == f"{right}, bound of the guarantee"]
    assert set(bound["method"]) == {"private"}
    # rho 1 is mu = sqrt 2.
    assert bound["value"].to_numpy() == pytest.approx(0.760, abs=5e-4)


@pytest.mark.soak
def test_the_same_seed_gives_the_same_figures(finished, settings_file):
    """Whatever else is drawn: of a first draw those that it has beside a second."""
    run, _ = finished
    evidence = product("evidence")
    settings = evidence.load(settings_file, ["evidence.draws=1"])
    again = prepare(settings, settings_file.parent / "again")
    call_stages(again, settings)
    tables = [pd.read_csv(own.root / "report" / "evidence.csv") for own in (run, again)]
    assert len(tables[0]) > len(tables[1]) > 100
    told = [
        table[(table["measure"] != "seconds") & (table["draw"] <= 1)].reset_index(drop=True)
        for table in tables
    ]
    assert {"rounding", "swapping", "private", "baseline", "ceiling"} <= set(told[1]["method"])
    pd.testing.assert_frame_equal(*told)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("input.confidential=true", "set input.confidential = false"),
        ('evidence.tables=["P99"]', "evidence.tables names 'P99'"),
        ("evidence.learned=hue", "evidence.learned"),
        ("topdown.geografy=1", "unknown setting 'topdown.geografy'.*did you mean 'geography'"),
        ("topdown.geography.bypass_cutoff=x", "topdown.geo.* must be a valid integer"),
        ("run.workers=1000000000", "run.workers must be less than or equal to 10000.$"),
        ("evidence.known=", "go together"),
        ('evidence.regions=["Counties"]', "evidence.regions names 'Counties'"),
        ('methods.nothing={kind="rounding"}', 'of kind "nothing"'),
        ('methods.keys={kind="cell_keys",threshold=2,variances=["1"]}', "turns a count of 1"),
        ('methods.swapping={kind="swapping",rates=["3/2"]}', "above 0 and at most 1"),
    ],
)
def test_settings_that_cannot_be_compared_are_refused(settings_file, change, words):
    with pytest.raises(InputRefused, match=words):
        product("evidence").load(settings_file, [change])


def test_the_budget_tells_what_private_releases_would_cost(settings_file, capsys):
    assert main(["budget", "evidence", str(settings_file)]) == 0
    assert "private, rho 1" in capsys.readouterr().out


@pytest.fixture
def country(tmp_path):
    """Settings of a comparison on a census abroad."""
    text = (Path(__file__).parent / "evidence_abroad.toml").read_text(encoding="utf-8")
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    return tmp_path / "settings.toml"


@pytest.mark.soak(2)
@pytest.mark.slow
def test_a_census_abroad_is_compared(country, tmp_path):
    assert len(country.read_text(encoding="utf-8").splitlines()) <= 60
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input", seed=3)
    evidence = product("evidence")
    settings = evidence.load(
        tmp_path / "settings.toml", ["evidence.draws=1", 'evidence.attacks=["averaging"]']
    )
    run = prepare(settings, tmp_path / "run")
    call_stages(run, settings)
    table = pd.read_csv(run.root / "report" / "evidence.csv")
    assert {"swapping", "cell_keys", "private"} < set(table["method"])
    assert set(table["level"]) == {"all", "municipality", "section"}
