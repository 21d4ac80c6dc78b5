"""Errors of a release of data that may be disclosed: against a truth that is counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.pages.document import Table
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.comparison import read_errors
from spineflow.tasks.products.registry import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.supplemental_dhc.ingest.ingest import read_plan
from spineflow.tasks.supplemental_dhc.plan import universe_plan
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from tests.flows.in_process import judged_once

SETTINGS = """\
preset = "supplemental_dhc_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
seed = 11
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("accuracy")
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=4)
    synthesize_households(folder / "raw", folder, seed=4)
    (folder / "settings.toml").write_text(SETTINGS)
    own = product("supplemental-dhc")
    settings = own.load(folder / "settings.toml")
    run = prepare(settings, folder / "run")
    with judged_once():
        call_stages(run, settings)
    return run


def tenures(folder: Path) -> list[int]:
    """Persons of owners with a mortgage and without, and of renters; 10 of a household at most."""
    units = pd.read_parquet(folder / "units.parquet")
    homes = units[(units["RTYPE"].astype(int) == 2) & (units["FINAL_POP"] > 0)]
    kind = homes["TEN"].astype(int).clip(upper=3)
    counted = homes["FINAL_POP"].clip(upper=10).groupby(kind).sum()
    return [int(counted[code]) for code in (1, 2, 3)]


def test_errors_are_distances_from_the_truth(run: RunDirectory) -> None:
    truth = tenures(run.root.parent)
    rows = pd.read_parquet(run.release / "supplemental_dhc.parquet")
    own = rows[(rows["table"] == "PH7") & (rows["level"] == "State") & (rows["iteration"] == "*")]
    values = np.array([sum(truth), *truth])
    errors = read_errors(run)
    accuracy = product("supplemental-dhc").accuracy
    assert errors is not None and accuracy is not None and accuracy.is_possible(run)
    keys = (errors["table"] == "PH7") & (errors["level"] == "State") & (errors["iteration"] == "*")
    (found,) = errors[keys].to_dict("records")
    distance = own["estimate"].to_numpy() - values
    assert found["rmse"] == pytest.approx(np.sqrt((distance**2).mean()), abs=1e-3)
    noisy = own["noisy"].to_numpy() - values
    assert found["rmse_noisy"] == pytest.approx(np.sqrt((noisy**2).mean()))
    inside = (own["low"].to_numpy() <= values) & (values <= own["high"].to_numpy())
    assert (found["kind"], found["rows"], found["covered"]) == ("count", 4, inside.mean())
    assert set(errors["kind"]) == {"count", "average"}


def test_the_report_of_public_data_shows_them(run: RunDirectory) -> None:
    page = run.report.read_text(encoding="utf-8")
    assert "root mean square error" in page and "NOT PRIVATE" in page
    assert "How accurate it is" in page and "2 tau + 2" in page


def test_costs_and_what_was_released_are_told(run: RunDirectory) -> None:
    own = product("supplemental-dhc")
    settings = own.load(run.root.parent / "settings.toml")
    rows = pd.read_parquet(run.release / "supplemental_dhc.parquet")
    first, second = own.words.summary(run, settings)
    assert str(first).startswith(f"{len(rows):,} rows of PH1 to PH8; ")
    plan = read_plan(run)
    for level, number in plan.levels.items():
        assert f"{number:,} {level}" in str(first)
        regions = rows[rows["level"] == level]["region"].nunique()
        assert regions <= number
    section, charged = own.costs_in_words(settings)
    words, table = section.blocks
    assert str(4 * plan.rho) in str(charged)
    assert f"rho {plan.rho} " in str(words) and f"rho {plan.rho} " in str(second)
    assert isinstance(table, Table) and len(table.rows) == len(plan.queries)
    assert not list(own.words.shown(run, settings, []))
    (shown,) = own.words.shown(run, settings, ["ledger"])
    assert shown.content == table and shown.key == "noise-people-in-households"
    curves = own.plan(settings, run).curves()
    assert curves is not None and list(curves.rhos.values()) == [plan.rho]
    facts = own.accuracy.figures.facts(run, settings)
    assert facts["levels"] == ", ".join(plan.levels) and f"rho {plan.rho} " in facts["loss"]
    without = replace(plan, queries=tuple(replace(q, sigma_squared=None) for q in plan.queries))
    assert "nothing is guaranteed" in Cost(universe_plan(without)).in_words
