"""A charged run that a defect of the program withheld goes on from its measurements."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.charging import published_files
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import sha256_of_file
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.release.tabulations import run as run_tables

from tests.flows.in_process import judged_once, stages_in_process, uncompared

SETTINGS = """
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "named.txt"
[privacy]
dataset = "county"
ledger = "ledger.db"
"""

NAMED = ["COUNTY_NAME", "PLACE_NAME", "COUNTY_INTPTLAT", "COUNTY_INTPTLON"]


@pytest.fixture(scope="module", autouse=True)
def in_process() -> Iterator[None]:
    with stages_in_process(judged_twice=False), judged_once(), uncompared():
        yield


def drawn(run: RunDirectory) -> dict[str, str]:
    """The digests of the measurements that the run has, which are those that the ledger knows."""
    found = {
        path.relative_to(run.root).as_posix(): sha256_of_file(path)
        for path in sorted(run.root.glob("measurements/*/*/dpqueries/*.parquet"))
    }
    ledger = open_ledger(run.root.parents[1] / "ledger.db", must_exist=True)
    assert found == published_files(ledger, run.read_manifest()["run_id"])
    return found


def charges(run: RunDirectory) -> list:
    """All that the ledger holds."""
    found = summary(open_ledger(run.root.parents[1] / "ledger.db", must_exist=True))
    products = [
        own for dataset in found["datasets"].values() for own in dataset["products"].values()
    ]
    return [draw for own in products for draw in own["draws"]]


@pytest.fixture(scope="module")
def withheld(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A charged run that failed, since the margins lacked columns that its tables had."""
    folder = tmp_path_factory.mktemp("named")
    generate_county(folder, persons=FEWEST_PERSONS, seed=3)
    geography = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str)
    told = ["Sample, County of", "East Side", "+35.5000000", "-106.0000000"]
    geography.assign(**dict(zip(NAMED, told, strict=True))).to_csv(
        folder / "named.txt", sep="|", index=False
    )
    file = folder / "settings.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    run, columns = RunDirectory(folder / "runs" / "first"), run_tables.entity_columns
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            run_tables,
            "entity_columns",
            lambda entities: columns(replace(entities, geography=pd.DataFrame())),
        )
        assert main(["run", "topdown", str(file), "--run-dir", str(run.root)]) == 5
        assert main(["resume", str(run.root)]) == 5, "the same version fails again"
    return run


@pytest.fixture
def run(withheld: RunDirectory) -> Iterator[RunDirectory]:
    """A copy of it, which has nothing left to draw, on the same ledger."""
    copy = RunDirectory(withheld.root.with_name("copy"))
    shutil.copytree(withheld.root, copy.root)
    yield copy
    shutil.rmtree(copy.root)


@pytest.mark.soak(9)
def test_a_mended_version_releases_what_was_measured_before(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spineflow.tasks.runs.directory.code_version", lambda: "mended")
    measured, charged = drawn(run), charges(run)
    assert main(["resume", str(run.root)]) == 0
    assert measured and drawn(run) == measured
    assert charged and charges(run) == charged
    tables = run.release / "tables"
    county, margins = (pq.read_schema(tables / f"050_county{x}.parquet") for x in ("", "_margins"))
    assert {"NAME", "INTPTLAT", "INTPTLON"} < set(county.names)
    codes = [name for name in county.names if not name.startswith(("P00", "H00"))]
    assert margins.names[: len(codes)] == codes
    text = (tables / "050_county_margins.csv").read_text()
    assert '"Sample, County of"' in text


@pytest.mark.soak(3)
@pytest.mark.slow
def test_a_withheld_release_goes_out_without_what_fails(run: RunDirectory, capsys) -> None:
    """By this version, with other settings of the release; what was charged is as it was."""
    measured, charged = drawn(run), charges(run)
    settings = run.settings.read_bytes()
    assert main(["resume", str(run.root), "--set", "release.margins=false"]) == 0
    assert drawn(run) == measured and charges(run) == charged
    assert run.settings.read_bytes() == settings
    assert not list(run.release.rglob("*_margins*"))
    # A later command keeps to it, and a finished release is not made otherwise.
    assert main(["resume", str(run.root)]) == 0
    capsys.readouterr()
    assert main(["resume", str(run.root), "--set", "release.margins=true"]) == 2
    assert "released with another release.margins" in capsys.readouterr().err
    assert main(["resume", str(run.root), "--set", f"release.publish_to={run.root}/../out"]) == 0
    assert (run.root.parent / "out" / "topdown.json").exists()
    assert charges(run) == charged
    shutil.rmtree(run.root.parent / "out")


@pytest.mark.soak(8)
def test_what_was_charged_must_be_as_it_was(run: RunDirectory, monkeypatch, capsys) -> None:
    """A mended version does not excuse altered measurements, nor an altered manifest."""
    monkeypatch.setattr("spineflow.tasks.runs.directory.code_version", lambda: "mended")
    file = next(run.root.glob("measurements/*/*/dpqueries/*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert main(["resume", str(run.root), "--set", "release.margins=false"]) == 3
    assert file.name in capsys.readouterr().err
    file.write_bytes(content)
    manifest = run.manifest.read_text()
    run.manifest.write_text(manifest.replace('"stages"', '"release": {"margins": false}, "stages"'))
    assert main(["resume", str(run.root)]) == 2
    assert "was altered" in capsys.readouterr().err


def test_the_place_of_a_release_may_change_in_any_product(tmp_path: Path) -> None:
    file = write_dataset(tmp_path, census_like(groups=400, counties=4, states=2, largest=8))
    run = RunDirectory(tmp_path / "run")
    assert main(["run", "group-sizes", str(file), "--run-dir", str(run.root)]) == 0
    place = f"release.publish_to={tmp_path}/out"
    assert main(["resume", str(run.root), "--set", place]) == 0
    assert (tmp_path / "out" / "group-sizes.json").exists()
