"""Several products of one dataset: one settings file, one ledger, one page."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.household_input import write_households
from tests.flows.in_process import judged_once, uncompared

PRODUCTS = ("topdown", "detailed-groups", "detailed-households", "group-sizes", "supplemental-dhc")
SUPPLEMENTAL_RHO = Fraction("1.257281")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("products")
    write_households(folder)
    file = folder / "products.toml"
    file.write_text(
        """\
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
[release]
publish_to = "published"
[products.topdown]
preset = "pl94_2020_us"
release = { margins = false, tables = false }
[products.detailed-groups]
input = { parameters = "params" }
mechanism = { coterminous = true }
[products.detailed-households]
input = { parameters = "params", groups = "products.detailed-groups" }
[products.group-sizes]
privacy = { epsilon = "1" }
mechanism = { largest_size = 50 }
[products.supplemental-dhc]
preset = "supplemental_dhc_2020_us"
""",
        encoding="utf-8",
    )
    return file


@pytest.fixture(scope="module")
def run(prefect_server, settings: Path) -> RunDirectory:
    folder = settings.parent / "run"
    with judged_once(), uncompared():
        assert main(["run", "products", str(settings), "--run-dir", str(folder)]) == 0
    return RunDirectory(folder)


@pytest.mark.soak(18)
def test_every_product_is_released_and_charged_once(run: RunDirectory, settings: Path) -> None:
    index = json.loads((run.release / "products.json").read_text(encoding="utf-8"))
    assert tuple(index) == PRODUCTS
    spent = summary(open_ledger(settings.parent / "ledger.db"))["datasets"]
    assert list(spent) == ["county"]
    drawn = spent["county"]["products"]
    assert set(drawn) == set(PRODUCTS)
    for name in PRODUCTS:
        part = RunDirectory(run.root / name)
        assert (run.release / index[name]["release"]).resolve() == part.release
        runs = {draw["run_id"] for draw in drawn[name]["draws"]}
        assert runs == {part.read_manifest()["run_id"]} == {index[name]["run_id"]}
    total = sum(Fraction(draw["bounded_rho"]) for part in drawn.values() for draw in part["draws"])
    assert Fraction(spent["county"]["rho"]) == total
    (draw,) = drawn["supplemental-dhc"]["draws"]
    assert Fraction(draw["parameter"]) == SUPPLEMENTAL_RHO
    assert Fraction(draw["bounded_rho"]) == 4 * SUPPLEMENTAL_RHO
    assert str(SUPPLEMENTAL_RHO) in (run.release / "certificate.md").read_text(encoding="utf-8")


@pytest.mark.soak(18)
@pytest.mark.usefixtures("in_process")
def test_the_same_people_under_another_name_are_refused(
    run: RunDirectory, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of any product that reads persons."""
    folder = settings.parent
    own = tmp_path / "settings.toml"
    own.write_text(
        'preset = "supplemental_dhc_2020_us"\n[input]\n'
        f'persons = "{folder}/persons.parquet"\nunits = "{folder}/units.parquet"\n'
        f'geography = "{folder}/grfc.txt"\n'
        f'[privacy]\ndataset = "others"\nledger = "{folder}/ledger.db"\n'
    )
    command = ["run", "supplemental-dhc", str(own), "--run-dir", str(tmp_path / "run")]
    assert main(command) != 0
    assert "'county'" in capsys.readouterr().err


@pytest.mark.soak(18)
def test_households_have_the_groups_that_were_released_before(run: RunDirectory) -> None:
    key = ["REGION_ID", "REGION_TYPE", "ITERATION_CODE"]
    groups, households = (
        pd.read_csv(run.root / name, sep="|", dtype=str)[key].drop_duplicates()
        for name in ("detailed-groups/release/t1.csv", "detailed-households/release/t3.csv")
    )
    assert len(groups) > 10
    assert set(households.itertuples(index=False)) == set(groups.itertuples(index=False))


@pytest.mark.soak(18)
def test_every_release_is_published_to_the_shared_place(run: RunDirectory, settings: Path) -> None:
    place = settings.parent / "published"
    listings = {path.stem: json.loads(path.read_text()) for path in place.glob("*.json")}
    assert set(listings) == set(PRODUCTS)
    for name, listing in listings.items():
        published = {path.name for path in (place / listing["folder"]).iterdir()}
        assert published == {path.name for path in (run.root / name / "release").iterdir()}

    again = ["run", "products", str(settings), "--run-dir", f"{run.root}-again"]
    assert main(again) == 2
    assert not (run.root.parent / "run-again" / "topdown").exists()


@pytest.mark.soak(20)
def test_a_run_that_was_interrupted_keeps_finished_products(run: RunDirectory, settings: Path):
    """The last product is finished again from its measurements; the first is left as it is."""
    ledger = settings.parent / "ledger.db"
    before = summary(open_ledger(ledger))
    first = RunDirectory(run.root / "topdown").release / "mdf_persons.parquet"
    last = RunDirectory(run.root / "supplemental-dhc")
    rows = (last.release / "supplemental_dhc.csv").read_bytes()
    made = first.stat().st_mtime_ns
    for folder in (run.release, last.release, run.report.parent):
        shutil.rmtree(folder)
    with judged_once(), uncompared():
        assert main(["resume", str(run.root)]) == 0
    assert first.stat().st_mtime_ns == made
    assert (last.release / "supplemental_dhc.csv").read_bytes() == rows
    assert run.report.exists()
    assert summary(open_ledger(ledger)) == before


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("products.topdown.privacy.dataset=other", "products.topdown.privacy.dataset"),
        ("products.topdown.privacy.ledger=other.db", "products.topdown.privacy.ledger"),
        ("products.trips.count=n", "products.trips"),
        ("products.group-sizes.privacy.epsilon=0", "group-sizes"),
        ("products.topdown.budget.persons.rho=-0.5", "products.topdown"),
        ("products.topdown=1", "products.topdown"),
        ("products=1", "products"),
        (
            "products.detailed-households.input.groups=products.group-sizes",
            "is held to 'group-sizes', which is no product that runs before it",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: Path, tmp_path: Path, override: str, said: str, capsys
) -> None:
    options = ["--set", override, "--run-dir", str(tmp_path / "run")]
    assert main(["run", "products", str(settings), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
