"""Two products of one dataset in this process: what a run of several adds to those of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from tests.flows.in_process import tasks_in_threads

PRODUCTS = ("group-sizes", "supplemental-dhc")
SETTINGS = """\
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
[products.group-sizes]
privacy = { epsilon = "1" }
mechanism = { largest_size = 50 }
[products.supplemental-dhc]
preset = "supplemental_dhc_2020_us"
"""


@pytest.fixture(autouse=True)
def in_threads() -> Iterator[None]:
    with tasks_in_threads():
        yield


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=1)
    synthesize_households(folder / "raw", folder, seed=1)
    file = folder / "products.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def made(settings: Path) -> RunDirectory:
    """A finished run; not to be changed."""
    folder = settings.parent / "run"
    with tasks_in_threads():
        assert main(["run", "products", str(settings), "--run-dir", str(folder)]) == 0
    return RunDirectory(folder)


def spent(settings: Path, **options: bool) -> dict:
    ledger = open_ledger(settings.parent / "ledger.db")
    return summary(ledger, **options)["datasets"]["county"]


def test_every_product_is_released_and_charged_once(made: RunDirectory, settings: Path) -> None:
    index = json.loads((made.release / "products.json").read_text(encoding="utf-8"))
    assert tuple(index) == PRODUCTS
    drawn = spent(settings)["products"]
    assert set(drawn) == set(PRODUCTS)
    for name in PRODUCTS:
        part = RunDirectory(made.root / name)
        assert (made.release / index[name]["release"]).resolve() == part.release
        runs = {draw["run_id"] for draw in drawn[name]["draws"]}
        assert runs == {part.read_manifest()["run_id"]} == {index[name]["run_id"]}
    total = sum(Fraction(draw["bounded_rho"]) for part in drawn.values() for draw in part["draws"])
    assert Fraction(spent(settings)["rho"]) == total
    manifest = made.read_manifest()
    assert manifest["status"] == "complete"
    assert {*PRODUCTS} <= set(manifest["stages"])


def test_what_is_finished_stays_when_a_run_goes_on(made: RunDirectory, settings: Path) -> None:
    """The second product is finished again from what was drawn."""
    before = spent(settings)
    first = made.root / "group-sizes" / "release" / "group_sizes.parquet"
    last = RunDirectory(made.root / "supplemental-dhc")
    rows = (last.release / "supplemental_dhc.csv").read_bytes()
    time = first.stat().st_mtime_ns
    for folder in (made.release, last.release, made.report.parent):
        shutil.rmtree(folder)
    assert main(["resume", str(made.root)]) == 0
    assert first.stat().st_mtime_ns == time
    assert (last.release / "supplemental_dhc.csv").read_bytes() == rows
    assert made.report.exists() and (made.release / "products.json").exists()
    assert spent(settings) == before


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("group-sizes:US=20", 0, "group-sizes: "),
        ("group-sizes:nowhere=20", 2, "nowhere"),
        ("trips:4=20", 2, "write PRODUCT:TARGET; the products are group-sizes, supplemental-dhc"),
        ("supplemental-dhc:PH1_num:US:*=20", 0, "supplemental-dhc: "),
        ("supplemental-dhc:PH1=20", 2, "name a measured level"),
    ],
)
def test_a_margin_is_turned_into_the_budget_of_a_product(
    settings: Path, target: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["budget", "products", str(settings), "--target", target]) == code
    shown = capsys.readouterr()
    assert said in (shown.err if code else shown.out)


def test_nothing_is_spent_where_a_later_product_cannot_be_run(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its households lack a column, which the first product does not read."""
    for name in ("persons.parquet", "units.parquet", "grfc.txt"):
        shutil.copy(settings.parent / name, tmp_path)
    file = tmp_path / "products.toml"
    text = SETTINGS.replace('preset = "supplemental_dhc_2020_us"', "", 1)
    file.write_text(
        f'{text}preset = "supplemental_dhc_2020_us"\ninput = {{ persons = "none.parquet" }}\n',
        encoding="utf-8",
    )
    assert main(["run", "products", str(file), "--run-dir", str(tmp_path / "run")]) == 2
    assert "none.parquet" in capsys.readouterr().err
    assert not (tmp_path / "ledger.db").exists()
    assert not (tmp_path / "run" / "group-sizes").exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("products.group-sizes.privacy.dataset=other", "products.group-sizes.privacy.dataset"),
        ("products.group-sizes.privacy.ledger=other.db", "products.group-sizes.privacy.ledger"),
        ("products.trips.count=n", "products.trips"),
        ("products.group-sizes.privacy.epsilon=0", "group-sizes"),
        ("products.group-sizes=1", "products.group-sizes"),
        ("products=1", "products"),
        (
            "products.detailed-households.input="
            "{parameters='params',groups='products.group-sizes'}",
            "reads the release of 'group-sizes', which is not run before it",
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
