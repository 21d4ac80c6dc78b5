"""Errors to be expected of releases of group sizes and trips, simulated on the releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.products.product import Product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.product import TRIPS

pytestmark = pytest.mark.slow

SMALL = CountrySize(regions=2, provinces=4, municipalities=12, pairs=60, commuters=5_000)
CENSUS = (
    '[input]\npersons = "{0}/persons.parquet"\nunits = "{0}/units.parquet"\n'
    'geography = "{0}/grfc.txt"\nconfidential = true\n'
    '[privacy]\ndataset = "d"\nepsilon = "1"\nledger = "ledger.db"\n'
    "[mechanism]\nlargest_size = 30\n"
)


@pytest.fixture(params=["group-sizes", "trips"])
def finished(
    request, county: Path, tmp_path: Path, in_process
) -> tuple[Product, RunDirectory, Any]:
    """A product, a private run of it, and its settings."""
    file = tmp_path / "settings.toml"
    if request.param == "group-sizes":
        product = GROUP_SIZES
        file.write_text(CENSUS.format(county))
    else:
        product = TRIPS
        file = generate_country(tmp_path, SMALL, seed=5)
    settings = product.load(file, ["input.confidential=true"])
    run = running.prepare(settings, tmp_path / "run")
    running.run_stages(product, run, settings)
    return product, run, settings


def test_the_truth_of_the_simulation_is_the_release(finished, tmp_path: Path) -> None:
    product, run, settings = finished
    (tmp_path / "input").mkdir()
    simulated = product.of_release(run, settings, tmp_path / "input")
    privacy = simulated.privacy.model_copy(update={"infinite": True})
    simulated = simulated.model_copy(update={"privacy": privacy})
    again = running.prepare(simulated, tmp_path / "again")
    running.run_stages(product, again, simulated)
    name = f"{product.name.replace('-', '_')}.parquet"
    same = pq.read_table(again.release / name).replace_schema_metadata()
    assert same.equals(pq.read_table(run.release / name).replace_schema_metadata())


def test_a_page_for_the_public_needs_nothing_confidential(finished, tmp_path: Path, capsys) -> None:
    _, run, _ = finished
    for path in run.confidential.rglob("*.parquet"):
        path.unlink()
    assert main(["report", str(run.root), "--expected", "2"]) == 0
    page = run.report.parent / "expected_error.html"
    assert str(page) in capsys.readouterr().out
    assert "2 releases were from this one" in page.read_text()
