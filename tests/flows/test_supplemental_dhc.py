"""The supplemental tables beside the redistricting product: one dataset, one ledger, one page."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.flows.cli import main
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import rehouse

pytestmark = pytest.mark.slow

SETTINGS = """\
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
[products.topdown]
preset = "pl94_2020_us"
release = { margins = false, tables = false }
[products.supplemental-dhc]
preset = "supplemental_dhc_2020_us"
"""
RHO = Fraction("1.257281")


@pytest.fixture(scope="module")
def run(prefect_server, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("together")
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=2)
    rehouse(folder / "raw", folder, seed=2)
    (folder / "settings.toml").write_text(SETTINGS)
    assert (
        main(["run", "products", str(folder / "settings.toml"), "--run-dir", f"{folder}/run"]) == 0
    )
    return RunDirectory(folder / "run")


def test_both_are_charged_once_to_the_same_people(run: RunDirectory) -> None:
    (dataset,) = summary(open_ledger(run.root.parent / "ledger.db"))["datasets"].values()
    products = dataset["products"]
    assert set(products) == {"topdown", "supplemental-dhc"}
    (draw,) = products["supplemental-dhc"]["draws"]
    assert Fraction(draw["parameter"]) == RHO and Fraction(draw["bounded_rho"]) == 4 * RHO
    total = sum(Fraction(d["bounded_rho"]) for own in products.values() for d in own["draws"])
    assert Fraction(dataset["rho"]) == total
    index = json.loads((run.release / "products.json").read_text(encoding="utf-8"))
    assert tuple(index) == ("topdown", "supplemental-dhc")
    certificate = (run.release / "certificate.md").read_text(encoding="utf-8")
    assert str(RHO) in certificate
    page = run.report.read_text(encoding="utf-8")
    assert 'href="../supplemental-dhc/report/report.html"' in page


def test_frames_tell_what_is_measured_and_released(run: RunDirectory) -> None:
    own = spineflow.open_run(run.root / "supplemental-dhc")
    rows = own.table("supplemental_dhc")
    noisy = own.measurements("State")
    tenures = noisy[(noisy["measure"] == "PH7") & (noisy["iteration"] == "B")]
    assert tenures["cell"].tolist() == [0, 1, 2]
    row = rows[(rows["table"] == "PH7") & (rows["level"] == "State") & (rows["iteration"] == "B")]
    assert row["noisy"].tolist() == [tenures["value"].sum(), *tenures["value"]]
    estimates = own.estimates("State")
    pd.testing.assert_series_equal(
        estimates["estimate"].reset_index(drop=True),
        rows.loc[rows["level"] == "State", "estimate"].reset_index(drop=True),
    )


def test_the_same_people_under_another_name_are_refused(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of any product that reads persons."""
    folder = run.root.parent
    own = SETTINGS.replace('"county"', '"others"').replace("ledger.db", f"{folder}/ledger.db")
    for name in ("persons.parquet", "units.parquet", "grfc.txt"):
        own = own.replace(f'"{name}"', f'"{folder / name}"')
    head, _, _ = own.partition("[products.topdown]")
    settings = tmp_path / "settings.toml"
    settings.write_text('preset = "supplemental_dhc_2020_us"\n' + head)
    command = ["run", "supplemental-dhc", str(settings), "--run-dir", str(tmp_path / "run")]
    assert main(command) != 0
    assert "'county'" in capsys.readouterr().err
