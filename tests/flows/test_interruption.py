"""Runs that are killed at moments all over the stages, and continued.

Whatever the moment, the release of the continued run is byte for byte that of an uninterrupted run
from the same measurements, the ledger holds one charge, and nothing temporary is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sqlite3
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from spineflow.tasks.ledger.caps import set_default_cap
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import RunDirectory, remove_derived

from tests.flows.commands import NO_CAP

pytestmark = pytest.mark.slow

PUBLISHED = "published"
TEMPORARY = (".part", ".unpublished")

UNTIL_MEASURED = [
    ("before", "os:replace", "settings.toml"),
    ("after", "os:replace", "manifest.json"),
    ("before", "os:replace", "validation/rules.json"),
    ("before", "os:rename", "ledger.db"),
    ("after", "spineflow.tasks.topdown.ingest.ingest:store_identity", "RunDirectory"),
    ("after", "os:replace", "histograms/persons.parquet"),
    ("before", "os:replace", "spine/state_totals.json"),
    ("before", "os:replace", "spine/persons/blocks.parquet"),
    ("after", "os:replace", "spine/units/geounits.parquet"),
    ("before", "spineflow.tasks.ledger.charging:charge", "topdown"),
    ("after", "spineflow.tasks.ledger.charging:charge", "topdown"),
    ("before", "os:link", "run/measurements/persons/US/constraints"),
    ("before", "spineflow.tasks.ledger.charging:claim", "persons/State/dpqueries"),
    ("after", "spineflow.tasks.ledger.charging:claim", "persons/US/dpqueries"),
    ("before", "spineflow.tasks.ledger.store:write_mark", "ledger.db.key"),
    ("after", "spineflow.tasks.ledger.store:write_mark", "ledger.db.key"),
    ("before", "spineflow.tasks.ledger.charging:record_publication", "persons/Block/dpqueries"),
    ("after", "spineflow.tasks.ledger.charging:record_publication", "units/Block/dpqueries"),
    ("before", "os:link", "run/measurements/persons/US/dpqueries"),
    ("after", "os:link", "run/measurements/persons/Tract/dpqueries"),
]
"""Moments up to the last measurement: the continued run draws what was not published."""

ONCE_MEASURED = [
    ("before", "os:replace", "persons/summary"),
    ("after", "os:replace", "estimates/persons/US"),
    ("before", "os:replace", "estimates/units/County"),
    ("after", "os:replace", "solves/persons/Block_Group"),
    ("before", "os:replace", "estimates/persons/Block/"),
    ("before", "os:replace", "mdf_persons.csv"),
    ("after", "os:replace", "mdf_units.parquet"),
    ("before", "os:replace", "validation/checks.json"),
    ("before", "os:replace", "certificate.html"),
    ("before", "os:rename", "release-unchecked"),
    ("after", "os:rename", "release-unchecked"),
    ("before", "os:replace", "confidential/accuracy"),
    ("before", "os:replace", "report/report.html"),
    ("before", "os:link", f"{PUBLISHED}/topdown-"),
    ("before", "os:link", f"{PUBLISHED}/topdown.json"),
    ("after", "os:link", f"{PUBLISHED}/topdown.json"),
]
"""Moments after it: everything is derived again, from measurements that all these tests share."""


def name_of(moment: tuple[str, str, str]) -> str:
    return " ".join(moment)


def write_settings(folder: Path, text: str) -> Path:
    settings = folder / "settings.toml"
    settings.write_text(f'{text}publish_to = "{PUBLISHED}"\n')
    return settings


def measurements(run: RunDirectory) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(run.root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("dpqueries/*.parquet")
    }


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a release, but for the certificate, which tells when the run began."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stem != "certificate"
    }


def resume(spineflow, run: RunDirectory, folder: Path, **environment: str) -> dict[str, bytes]:
    """Resume to the end, told of nothing but files that are made again; the release."""
    code, output, errors = spineflow("resume", str(run.root), folder=folder, **environment).ended()
    told = [
        line
        for line in errors.splitlines()
        if not line.startswith(NO_CAP) and not line.endswith(" is missing, and is made again.")
    ]
    assert (code, told) == (0, [])
    assert "checks passed" in output
    return contents(run.release)


def published_measurements(ledger: Path, run_id: str) -> dict[str, str]:
    """Digests of the measurements that the ledger knows as published by a run."""
    with closing(sqlite3.connect(ledger)) as connection:
        rows = connection.execute("SELECT name, digest FROM published WHERE run_id = ?", [run_id])
        return dict(rows.fetchall())


def assert_whole(run: RunDirectory, folder: Path, published: Path) -> None:
    """One charge, all measurements known, one published copy, nothing temporary, all complete."""
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    assert all(stage["status"] == "complete" for stage in manifest["stages"].values())
    spent = summary(open_ledger(folder / "ledger.db", must_exist=True))["datasets"]["county"]
    draws = spent["products"]["topdown"]["draws"]
    assert [(draw["run_id"], draw["name"]) for draw in draws] == [
        (manifest["run_id"], "persons"),
        (manifest["run_id"], "units"),
    ]
    known = published_measurements(folder / "ledger.db", manifest["run_id"])
    assert known == {
        name: hashlib.sha256(content).hexdigest()
        for name, (_, content) in measurements(run).items()
    }
    listing = json.loads((published / "topdown.json").read_text())
    assert contents(published / listing["folder"]) == contents(run.release)
    for place in (folder, run.root, published):
        for path in place.rglob("*"):
            assert path.suffix not in TEMPORARY, path


def kill_and_resume(
    spineflow, folder: Path, text: str, moment, *, again=None, **environment: str
) -> None:
    """Kill a run at a moment of its first part; the continued run must give what it measured.

    What is derived is made anew by the same command, or by another: `again`, a function of a run.
    """
    settings = write_settings(folder, text)
    run = RunDirectory(folder / "run")
    command = ("run", "topdown", str(settings), "--run-dir", str(run.root))
    code, _, errors = spineflow(*command, folder=folder, killed=moment, **environment).ended()
    assert code == -9, f"the run was not killed: {errors}"
    measured = measurements(run)

    if not run.manifest.exists():
        # There is no run yet to resume: the same command begins it.
        assert spineflow(*command, folder=folder, **environment).ended()[0] == 0
    released = resume(spineflow, run, folder, **environment)
    after = measurements(run)
    assert {path: after[path] for path in measured} == measured
    assert_whole(run, folder, folder / PUBLISHED)

    remove_derived(run)
    made_anew = again or partial(resume, spineflow, folder=folder, **environment)
    assert made_anew(run) == released
    assert measurements(run) == after


@pytest.fixture(scope="session")
def uninterrupted(spineflow, real_server, settings_text: str, tmp_path_factory) -> Path:
    """Folder of a run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    set_default_cap(open_ledger(folder / "ledger.db"), Fraction(9))
    settings = write_settings(folder, settings_text.replace("margins = false\n", ""))
    command = ("run", "topdown", str(settings), "--run-dir", str(folder / "run"))
    code, _, errors = spineflow(*command, folder=folder, **real_server.environment).ended()
    assert (code, errors) == (0, "")
    assert_whole(RunDirectory(folder / "run"), folder, folder / PUBLISHED)
    return folder


def measured_copy(uninterrupted: Path, folder: Path) -> RunDirectory:
    """A copy of a run as of its last measurement, and nothing where it publishes."""
    shutil.rmtree(uninterrupted / PUBLISHED)
    shutil.copytree(uninterrupted / "run", folder / "run")
    run = RunDirectory(folder / "run")
    remove_derived(run)
    for summary_of_spine in (run.root / "spine").glob("*/summary"):
        shutil.rmtree(summary_of_spine)
    manifest = run.read_manifest()
    later = ("estimate", "microdata", "summary", "tables", "margins", "accuracy")
    stages = {
        name: stage
        for name, stage in manifest["stages"].items()
        if name not in ("checks", "release", "report", "publication")
        and not any(word in name for word in later)
    }
    run.update_manifest(status="running", stages=stages)
    return run


@pytest.mark.soak
def test_killed_with_its_server_during_estimation(
    spineflow, new_spineflow, real_server, settings_text, tmp_path
) -> None:
    """On the embedded server, which dies with the run."""
    moment = ("after", "os:replace", "estimates/persons/Tract")
    again = partial(resume, spineflow, folder=tmp_path, **real_server.environment)
    kill_and_resume(new_spineflow, tmp_path, settings_text, moment, again=again)


@pytest.mark.soak
@pytest.mark.parametrize("moment", UNTIL_MEASURED, ids=name_of)
def test_killed_until_it_was_measured(
    spineflow, real_server, settings_text: str, tmp_path: Path, moment: tuple[str, str, str]
) -> None:
    kill_and_resume(spineflow, tmp_path, settings_text, moment, **real_server.environment)


@pytest.mark.soak
@pytest.mark.parametrize("moment", ONCE_MEASURED, ids=name_of)
def test_killed_once_it_was_measured(
    spineflow, real_server, uninterrupted: Path, tmp_path: Path, moment: tuple[str, str, str]
) -> None:
    run = measured_copy(uninterrupted, tmp_path)
    before = measurements(run)
    killed = spineflow(
        "resume", str(run.root), folder=tmp_path, killed=moment, **real_server.environment
    )
    code, _, errors = killed.ended()
    assert code == -9, f"the run was not killed: {errors}"
    released = resume(spineflow, run, tmp_path, **real_server.environment)
    assert released == contents(uninterrupted / "run" / "release")
    assert measurements(run) == before
    assert_whole(run, uninterrupted, uninterrupted / PUBLISHED)


def test_a_run_directory_has_one_owner(spineflow, tmp_path: Path, capsys) -> None:
    from spineflow.flows.cli import main

    run = RunDirectory(tmp_path / "run")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "county"\n'
    )
    with run.locked():
        command = ("run", "topdown", str(settings), "--run-dir", str(run.root))
        code, _, errors = spineflow(*command, folder=tmp_path).ended()
    assert code == 1
    owner = f"in use by process {os.getpid()} on {socket.gethostname()} since "
    assert owner in errors
    assert errors.count("\n") == 1
    assert main(["resume", str(run.root)]) == 2
