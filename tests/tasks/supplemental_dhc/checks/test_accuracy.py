"""Errors of a release of data that may be disclosed: against a truth that is counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.products.comparison import read_errors
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
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
