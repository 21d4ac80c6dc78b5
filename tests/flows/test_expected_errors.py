"""Errors to be expected of releases of group sizes and trips, simulated on the releases."""

from __future__ import annotations

import shutil
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

from tests.flows.in_process import stages_in_process

pytestmark = pytest.mark.slow

SMALL = CountrySize(regions=2, provinces=4, municipalities=12, pairs=60, commuters=5_000)
CENSUS = (
    '[input]\npersons = "{0}/persons.parquet"\nunits = "{0}/units.parquet"\n'
    'geography = "{0}/grfc.txt"\nconfidential = true\n'
    '[privacy]\ndataset = "d"\nepsilon = "1"\nledger = "ledger.db"\n'
    "[mechanism]\nlargest_size = 30\n"
)


@pytest.fixture(scope="module", params=["group-sizes", "trips"])
def finished(
    request, smallest_county: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Product, RunDirectory, Any]:
    """A product, a private run of it, which is not to be changed, and its settings."""
    folder = tmp_path_factory.mktemp("finished")
    file = folder / "settings.toml"
    if request.param == "group-sizes":
        product = GROUP_SIZES
        file.write_text(CENSUS.format(smallest_county))
    else:
        product = TRIPS
        file = generate_country(folder, SMALL, seed=5)
    settings = product.load(file, ["input.confidential=true"])
    run = running.prepare(settings, folder / "run")
    with stages_in_process(judged_twice=False):
        running.run_stages(product, run, settings)
    return product, run, settings


@pytest.mark.usefixtures("in_process")
def test_the_truth_of_the_simulation_is_the_release(finished, tmp_path: Path) -> None:
    product, run, settings = finished
    (tmp_path / "input").mkdir()
    simulated = product.accuracy.of_release(run, settings, tmp_path / "input")
    privacy = simulated.privacy.model_copy(update={"infinite": True})
    simulated = simulated.model_copy(update={"privacy": privacy})
    again = running.prepare(simulated, tmp_path / "again")
    running.run_stages(product, again, simulated)
    name = f"{product.name.replace('-', '_')}.parquet"
    same = pq.read_table(again.release / name).replace_schema_metadata()
    assert same.equals(pq.read_table(run.release / name).replace_schema_metadata())


@pytest.mark.usefixtures("in_process")
def test_a_page_for_the_public_needs_nothing_confidential(finished, tmp_path: Path, capsys) -> None:
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(finished[1].root, run.root)
    for path in run.confidential.rglob("*.parquet"):
        path.unlink()
    assert main(["report", str(run.root), "--expected", "2"]) == 0
    page = run.report.parent / "expected_error.html"
    assert str(page) in capsys.readouterr().out
    assert "2 releases were from this one" in page.read_text()
