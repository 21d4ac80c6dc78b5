"""Runs of every product that are killed at moments all over their stages, and continued.

Whatever the moment, the continued run keeps what was measured, has one charge, leaves nothing
temporary, and releases byte for byte what its measurements imply.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import Caps, set_caps, summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, remove_derived

from tests.flows.commands import NO_CAP, STAGE_LINE, Command
from tests.flows.conformance.cases import CASES, contents, measurements
from tests.flows.in_process import stages_in_process, uncompared
from tests.flows.published_noise import read_ledger

pytestmark = [pytest.mark.slow, pytest.mark.soak(20)]

Moment = tuple[str, str, str]

CHARGE = "spineflow.tasks.ledger.charging:charge"
RECORD = "spineflow.tasks.ledger.charging:record_publication"
CLAIM = "spineflow.tasks.ledger.charging:claim"
MARK = "spineflow.tasks.ledger.store:write_mark"
IDENTITY = "spineflow.tasks.topdown.ingest.ingest:store_identity"
MEASURED = "run/measurements"

MOMENTS: dict[str, list[Moment]] = {
    "topdown": [
        ("before", "os:replace", "settings.toml"),
        ("after", "os:replace", "manifest.json"),
        ("after", "os:replace", "ledger.db"),  # Its key is there, the ledger is not.
        ("after", IDENTITY, "RunDirectory"),
        ("before", "os:replace", "spine/persons/blocks.parquet"),
        ("before", CHARGE, "topdown"),
        ("after", CHARGE, "topdown"),
        ("after", CLAIM, "persons/US/dpqueries"),
        ("before", MARK, "ledger.db.key"),
        ("after", MARK, "ledger.db.key"),
        ("before", RECORD, "persons/Block/dpqueries"),
        ("before", "os:link", f"{MEASURED}/persons/US/dpqueries"),
        ("after", "os:link", f"{MEASURED}/persons/Tract/dpqueries"),
        ("after", "os:replace", "estimates/persons/US"),
        ("after", "os:replace", "solves/persons/Block_Group"),
        ("before", "os:replace", "mdf_persons.csv"),
        ("after", "os:replace", "mdf_units.parquet"),
        ("before", "os:replace", "validation/checks.json"),
        ("before", "os:rename", "release-unchecked"),
        ("after", "os:rename", "release-unchecked"),
        ("before", "os:replace", "confidential/accuracy"),
        ("after", "os:link", "published/topdown.json"),
    ],
    "detailed groups": [
        ("after", "os:replace", "detailed_groups/persons.bin"),
        ("after", CHARGE, "detailed-groups"),
        ("before", "os:link", f"{MEASURED}/detailed_groups_stage_1/us/TRACT/2"),
        ("before", RECORD, "detailed_groups/us/STATE/2"),
        ("after", "os:replace", "suppressed/TRACT"),
        ("before", "os:rename", "release-unchecked"),
    ],
    "detailed households": [
        ("after", "os:replace", "detailed_groups/persons.bin"),
        ("after", CHARGE, "detailed-households"),
        ("before", "os:link", f"{MEASURED}/detailed_households/t3/us/TRACT/2"),
        ("before", RECORD, "detailed_households/t4/us/STATE/2"),
        ("before", "os:rename", "release-unchecked"),
    ],
    "group sizes": [
        ("after", "os:replace", "hierarchy/plan.json"),
        ("after", "os:link", f"{MEASURED}/groups/nation/dpqueries"),
        ("before", "os:replace", "estimates/groups/county"),
        ("after", "os:rename", "release-unchecked"),
    ],
    "trips": [
        ("before", "os:replace", "trips/tree.json"),
        ("after", CHARGE, "trips"),
        ("after", "os:link", f"{MEASURED}/trips/level_02/dpqueries"),
        ("before", RECORD, "level_04/dpqueries"),
        ("after", "os:link", f"{MEASURED}/trips/level_06/dpqueries"),
        ("before", "os:rename", "release-unchecked"),
    ],
    "supplemental dhc": [
        ("after", CHARGE, "supplemental-dhc"),
        ("before", "os:link", f"{MEASURED}/people_in_households/US/dpqueries"),
        ("after", "os:link", f"{MEASURED}/people_in_households/State/dpqueries"),
        ("before", "os:rename", "release-unchecked"),
        ("after", "os:rename", "release-unchecked"),
    ],
}
"""A command dies before or after a call with words among its arguments; see `DEADLY`."""

WITH_TABLES: list[Moment] = [
    ("before", "os:replace", "mdf_persons.csv"),
    ("after", "os:replace", "mdf_units.parquet"),
    ("before", "os:replace", "validation/checks.json"),
    ("before", "os:rename", "release-unchecked"),
]
"""Moments at which topdown may be at its margins and tables, or has them but not checked: at others
there are none, which are half of a run."""

COMPARED = MOMENTS["topdown"].index(WITH_TABLES[0])
"""From here on topdown may be being compared with the truth when it is killed."""


def told_of_nothing(errors: str) -> None:
    """Nothing was said but that nothing caps the run, and what is made again."""
    lines = [line for line in errors.splitlines() if not line.startswith((*NO_CAP, "note: "))]
    assert lines == []


def assert_whole(run: RunDirectory, folder: Path, product: str) -> None:
    """One charge, all measurements known, one published copy, nothing temporary, all complete."""
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    assert all(stage["status"] == "complete" for stage in manifest["stages"].values())
    (dataset,) = summary(open_ledger(folder / "ledger.db"))["datasets"].values()
    draws = dataset["products"][product]["draws"]
    assert {draw["run_id"] for draw in draws} == {manifest["run_id"]}
    assert len({draw["name"] for draw in draws}) == len(draws)
    assert read_ledger(folder / "ledger.db").published_by(manifest["run_id"]) == {
        name: hashlib.sha256(content).hexdigest()
        for name, (_, content) in measurements(run).items()
    }
    listing = json.loads((folder / "published" / f"{product}.json").read_text())
    assert contents(folder / "published" / listing["folder"]) == contents(run.release)
    left = [path for path in folder.rglob("*") if path.suffix in (".part", ".unpublished")]
    assert not left


def ended_here(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """How a command ends in this process, as `Command.ended` tells it.

    Prefect keeps nothing that a continued run would find, so that a run without it continues one
    that had it.
    """
    output, errors = io.StringIO(), io.StringIO()
    with (
        stages_in_process(judged_twice=False),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = main(arguments)
    return code, output.getvalue(), STAGE_LINE.sub("", errors.getvalue())


@pytest.mark.parametrize(
    ("case", "moment"),
    [(case, moment) for case, moments in MOMENTS.items() for moment in moments],
    ids=lambda part: part if isinstance(part, str) else " ".join(part),
)
def test_a_killed_run_is_continued_with_the_noise_that_it_drew(
    case: str, moment: Moment, spineflow, real_server, tmp_path: Path
) -> None:
    """Threat model: crash before noise could be seen."""
    killing = partial(spineflow, **real_server.environment)
    is_early = moment in MOMENTS["topdown"][:COMPARED]
    with uncompared() if is_early else contextlib.nullcontext():
        kill_and_resume(case, moment, killing, ended_here, tmp_path)


def test_killed_with_its_server_during_estimation(new_spineflow, tmp_path: Path) -> None:
    """On the embedded server, which dies with the run."""
    moment = ("after", "os:replace", "estimates/persons/Tract")

    def resumed(*arguments: str, folder: Path) -> tuple[int, str, str]:
        return new_spineflow(*arguments, folder=folder).ended()

    kill_and_resume("topdown", moment, new_spineflow, resumed, tmp_path)


def kill_and_resume(
    name: str,
    moment: Moment,
    killing: Callable[..., Command],
    resumed: Callable[..., tuple[int, str, str]],
    folder: Path,
) -> None:
    """Kill a run at a moment; the continued run, and one from its measurements, release the same.

    There is a capped ledger before it, unless it is killed while it makes its own.
    """
    case = CASES[name]
    settings = case.write(folder)
    release = '\n[release]\npublish_to = "published"\n'
    if case.product == "topdown" and moment not in WITH_TABLES:
        release += "margins = false\ntables = false\n"
    with settings.open("a", encoding="utf-8") as file:
        file.write(release)
    if moment[2] != "ledger.db":
        set_caps(open_ledger(folder / "ledger.db"), None, Caps(Fraction(100)))
    run = RunDirectory(folder / "run")
    command = ("run", case.product, str(settings), "--run-dir", str(run.root))
    code, _, errors = killing(*command, folder=folder, killed=moment).ended()
    assert code == -9, f"the run was not killed: {errors}"
    before = measurements(run) if run.root.exists() else {}
    drawn = {own: kept for own, kept in before.items() if not own.endswith(".unpublished")}

    # Where there is no run yet to resume, the same command begins it.
    again = ("resume", str(run.root)) if run.manifest.exists() else command
    code, output, errors = resumed(*again, folder=folder)
    assert code == 0, errors
    told_of_nothing(errors)
    assert "checks passed" in output
    after = measurements(run)
    assert {own: after[own] for own in drawn} == drawn
    assert_whole(run, folder, case.product)

    released = contents(run.release, but="certificate")
    remove_derived(run)
    shutil.rmtree(folder / "published")
    with stages_in_process(judged_twice=False), uncompared():
        assert main(["resume", str(run.root)]) == 0
    assert contents(run.release, but="certificate") == released
    assert measurements(run) == after
