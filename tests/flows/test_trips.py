"""The trips flow through the command: release, refusals, warnings, interruption."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import set_default_cap
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import DERIVED, RunDirectory
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

SMALL = CountrySize(regions=3, provinces=6, municipalities=30, pairs=300, commuters=50_000)

MOMENTS = [
    ("before", "os:replace", "trips/tree.json"),
    ("after", "spineflow.tasks.ledger.charging:charge", "trips"),
    ("after", "os:link", "run/measurements/trips/level_02/cuts.json"),
    ("before", "os:link", "run/measurements/trips/level_03/dpqueries"),
    ("before", "spineflow.tasks.ledger.charging:record_publication", "level_04/dpqueries"),
    ("after", "os:link", "run/measurements/trips/level_06/dpqueries"),
    ("before", "os:replace", "estimates/trips/level_05"),
    ("after", "os:replace", "release-unchecked/trips.parquet"),
    ("before", "os:rename", "release-unchecked"),
]


@pytest.fixture
def country(tmp_path: Path) -> Path:
    """A settings file of a private run, beside its generated input."""
    return generate_country(tmp_path / "country", SMALL, seed=4)


def confidential(settings: Path) -> Path:
    text = settings.read_text().replace("confidential = false", "confidential = true")
    settings.write_text(text)
    return settings


def released(run: RunDirectory) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in run.release.iterdir() if path.stem != "certificate"
    }


def measured(run: RunDirectory) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(run.root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_release_depends_on_measurements_alone(country: Path, tmp_path: Path, capsys) -> None:
    """What follows from measurements is made again without the confidential folder."""
    run = RunDirectory(tmp_path / "run")
    command = ["run", "trips", str(confidential(country)), "--run-dir", str(run.root)]
    assert main(command) == 0
    assert "7 checks passed" in capsys.readouterr().out
    table = pd.read_csv(run.release / "trips.csv")
    assert list(table) == ["origin", "destination", "count"]
    assert table["count"].sum() == SMALL.commuters
    assert "largest error" not in run.report.read_text()
    assert run.read_manifest()["status"] == "complete"

    first, drawn = released(run), measured(run)
    shutil.rmtree(run.confidential)
    for name in DERIVED:
        shutil.rmtree(run.root / name, ignore_errors=True)
    assert main(["resume", str(run.root)]) == 0
    assert released(run) == first
    assert measured(run) == drawn
    spent = summary(open_ledger(country.parent / "ledger.db"))["datasets"]["generated-country"]
    assert len(spent["products"]["trips"]["draws"]) == 1
    assert main(["report", str(run.root)]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    "overrides",
    [
        ("mechanism.name=inftda_full_information",),
        ("mechanism.name=inftda_full_information", "mechanism.most_nodes=1"),
        ("mechanism.name=stability_histogram",),
        ("privacy.neighbors=unbounded", "mechanism.tree=origin"),
    ],
    ids=" ".join,
)
def test_every_order_of_stages_ends_in_a_release(
    overrides: tuple[str, ...], country: Path, tmp_path: Path
) -> None:
    command = ["run", "trips", str(country), "--run-dir", str(tmp_path / "run")]
    for override in overrides:
        command += ["--set", override]
    assert main(command) == 0
    run = RunDirectory(tmp_path / "run")
    assert pq.read_metadata(run.release / "trips.parquet").num_rows > 10
    assert "largest error" in run.report.read_text()


def kill_and_resume(spineflow, country: Path, folder: Path, moment, **environment: str) -> None:
    ledger = open_ledger(country.parent / "ledger.db")
    set_default_cap(ledger, Fraction(100))
    run = RunDirectory(folder / "run")
    command = ("run", "trips", str(country), "--run-dir", str(run.root))
    code, _, _ = spineflow(*command, folder=folder, killed=moment, **environment).ended()
    assert code < 0
    before = measured(run) if run.root.exists() else {}
    drawn = {name: kept for name, kept in before.items() if not name.endswith(".unpublished")}
    resume = spineflow(*command, folder=folder, **environment)
    code, output, errors = resume.ended()
    assert (code, errors) == (0, "")
    assert "7 checks passed" in output
    after = measured(run)
    assert drawn == {name: after[name] for name in drawn}
    spent = summary(ledger)["datasets"]["generated-country"]
    assert len(spent["products"]["trips"]["draws"]) == 1
    assert not [path for path in run.root.rglob("*") if path.suffix in (".part", ".unpublished")]


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS, ids=" ".join)
def test_killed_at_any_moment(
    spineflow, real_server, country: Path, tmp_path: Path, moment
) -> None:
    kill_and_resume(spineflow, country, tmp_path, moment, **real_server.environment)


def with_counts(settings: Path, first: float) -> None:
    path = settings.parent / "trips.parquet"
    table = pd.read_parquet(path)
    table["commuters"] = [first, *table["commuters"][1:]]
    table.to_parquet(path)


@pytest.mark.parametrize(
    ("spoil", "options", "said"),
    [
        (lambda s: with_counts(s, -1), [], "commuters must not be negative in any row (1 row"),
        (lambda s: with_counts(s, 0.5), [], "commuters must be a whole number in every row"),
        (None, ["--set", "privacy.epsilon=0"], "privacy.epsilon must be a positive fraction"),
        (None, ["--set", "input.areas=none.csv"], "none.csv: the file does not exist"),
        (None, ["--set", 'mechanism.shares=["1"]'], "lists 1 shares, but 6 levels are measured"),
    ],
)
def test_refusals_name_what_is_wrong(country: Path, spoil, options, said: str, capsys) -> None:
    if spoil is not None:
        spoil(country)
    assert main(["check", "trips", str(country), *options]) == 2
    assert said in capsys.readouterr().err


def test_counts_of_confidential_rows_are_not_told(country: Path, capsys) -> None:
    with_counts(confidential(country), -1)
    assert main(["check", "trips", str(country)]) == 2
    errors = capsys.readouterr().err
    assert "must not be negative" in errors and "row breaks" not in errors


@pytest.mark.slow
def test_a_large_delta_warns(country: Path, capsys) -> None:
    assert main(["check", "trips", str(country), "--set", "privacy.delta=1/1000"]) == 0
    assert "warning: privacy.delta = 1/1000 is not below" in capsys.readouterr().err
    assert main(["check", "trips", str(country)]) == 0
    assert "warning" not in capsys.readouterr().err
    options = ["--set", "privacy.delta=1/1000", "--set", "privacy.neighbors=unbounded"]
    assert main(["check", "trips", str(confidential(country)), *options]) == 2
    assert "privacy.delta is not below one over the number" in capsys.readouterr().err
    accepted = ["--set", "privacy.large_delta=a person may be published outright"]
    assert main(["check", "trips", str(country), *options, *accepted]) == 0


def test_budget_shows_every_level(country: Path, capsys) -> None:
    assert main(["budget", "trips", str(country), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["trips"]
    assert report["neighbors"] == "bounded"
    assert report["epsilon"]["simple"] == pytest.approx(1, abs=1e-9)
    assert [query["share"] for query in report["queries"]] == ["1/6"] * 6
    assert report["queries"][-1]["geolevel"] == "origin municipality, destination municipality"
    assert main(["budget", "trips", str(country)]) == 0
    assert "origin municipality" in capsys.readouterr().out
