"""What a finished run has released, published, charged and told, of every product and census."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Collection
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from jsonschema import validate
from spineflow.flows.cli import main
from spineflow.tasks.dissemination.registration import (
    Office,
    deployment_record,
    finished_release,
    self_assessment,
    to_yaml,
)
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.pages.document import to_markdown
from spineflow.tasks.pages.numbers import format_delta, format_epsilon, format_upper_bound
from spineflow.tasks.runs.damage import record_anew
from spineflow.tasks.runs.directory import RunDirectory, remove_derived
from spineflow.tasks.runs.errors import CheckFailed
from spineflow.tasks.tables.layouts import TableLayout
from spineflow.tasks.tables.readers import Selection, read_batches
from spineflow.tasks.tables.sources import InputFile

from tests.flows.conformance.cases import (
    CASES,
    PRODUCTS,
    Finished,
    checks_of,
    contents,
    measurements,
)
from tests.parquet_pages import surplus

CERTIFICATE = {"certificate.html", "certificate.json", "certificate.md"}
QUICK = ("topdown", "on demand", "register", "homes")
"""Cases whose tests are quick: each comes to what the others have not."""


def cases(*quick: str, of: Collection[str] = tuple(CASES)) -> list[Any]:
    """Cases, by default all, the tests of some of them quick."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in of]


@pytest.fixture(params=cases(*QUICK))
def finished(request: pytest.FixtureRequest, finished_run: Callable[[str], Finished]) -> Finished:
    """The finished run of every case in turn; not to be changed."""
    return finished_run(request.param)


def draws_of(finished: Finished) -> list[dict[str, str]]:
    """The draws that the ledger has, all of them of this run."""
    (dataset,) = summary(open_ledger(finished.ledger, must_exist=True))["datasets"].values()
    ((name, product),) = dataset["products"].items()
    assert name == finished.case.product
    return product["draws"]


def test_the_release_is_whole_and_checked(finished: Finished) -> None:
    run = finished.run
    assert {path.name for path in run.release.iterdir()} == {*finished.case.released, *CERTIFICATE}
    assert len(checks_of(run)) == finished.case.n_checks
    assert all(check["passed"] for check in checks_of(run))
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    assert all(stage["status"] == "complete" for stage in manifest["stages"].values())
    assert set(manifest["input_digests"]) == set(finished.case.tables)
    finished.case.holds(run, finished.folder)


def test_no_pass_gave_up_agreement_with_an_earlier_one(finished: Finished) -> None:
    solves = list((finished.run.root / "solves").rglob("*.parquet"))
    if not solves:
        pytest.skip("a product without passes")
    assert not any(pq.read_table(path)["relaxed"].to_numpy().any() for path in solves)


def test_public_tables_hold_their_values_and_nothing_else_of_the_memory(finished: Finished) -> None:
    """Threat model: process memory in published files."""
    run = finished.run
    tables = [path for path in run.root.rglob("*.parquet") if run.confidential not in path.parents]
    assert tables and {path: surplus(path) for path in tables if surplus(path)} == {}


def test_what_is_released_in_both_formats_is_read_back_alike(finished: Finished) -> None:
    """By the readers of input, whatever letters names have; figures are not whole numbers."""
    read = dict[Path, list[list[object]]]()
    for path in finished.run.release.glob("*.csv"):
        whole = path.with_suffix(".parquet")
        schema = pq.read_schema(whole) if whole.exists() else pa.schema([])
        names = [field.name for field in schema if not pa.types.is_floating(field.type)]
        if not names:
            continue
        layout = TableLayout.expected("release", dict.fromkeys(names, "text"))
        for file in (path, whole):
            asked = InputFile("release", str(file), file.name, layout)
            batches = list(read_batches(asked, Selection(tuple(names))))
            read[file] = [
                ["" if v is None else str(v) for b in batches for v in b[name].to_pylist()]
                for name in names
            ]
        assert read[path] == read[whole], path.name
    if not read:
        pytest.skip("a product with one format")


def test_nothing_confidential_is_among_what_is_public(finished: Finished) -> None:
    """Nor anything that was not finished."""
    run = finished.run
    assert run.confidential.stat().st_mode & 0o777 == 0o700
    paths = [path for path in run.root.rglob("*") if run.confidential not in path.parents]
    public = [path for path in paths if "accuracy" in path.name]
    assert [path.name for path in public] in ([], ["accuracy.html"])
    assert any("accuracy" in path.name for path in run.confidential.rglob("*"))
    assert not [path for path in paths if path.suffix in (".part", ".unpublished")]
    report = run.report.read_text(encoding="utf-8")
    assert "largest error" not in report and "NOT PRIVATE" not in report


def test_the_certificate_says_what_was_done(finished: Finished) -> None:
    """Threat model: measurements on demand taken for complete ones."""
    text = (finished.run.release / "certificate.md").read_text(encoding="utf-8")
    manifest = finished.run.read_manifest()
    digests = manifest["input_digests"].values()
    facts = (*finished.case.facts, manifest["settings_digest"], manifest["code_version"], *digests)
    assert [fact for fact in facts if fact not in text] == []
    assert "FAILED" not in text and "NOT PRIVATE" not in text


def schema_of(name: str) -> dict[str, Any]:
    path = Path(__file__).parents[3] / "docs" / f"{name}.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_plan_and_certificate_have_the_published_form_and_the_same_numbers(
    finished: Finished,
) -> None:
    """Every number of the tables of the Markdown certificate is one of its JSON, and back."""
    run = finished.run
    plan = json.loads((run.root / "plan" / "plan.json").read_text(encoding="utf-8"))
    record = json.loads((run.release / "certificate.json").read_text(encoding="utf-8"))
    validate(plan, schema_of("plan"))
    validate(record, schema_of("certificate"))
    assert {name: record[name] for name in plan} == plan
    for measure in plan["measures"]:
        moved, parameter = Fraction(measure["moved"]), Fraction(measure["parameter"])
        if measure["mechanism"] == "discrete_gaussian":
            moved /= 2
        assert moved / parameter == Fraction(measure["loss"]), measure
    for own in plan["guarantees"]:
        losses = {Fraction(m["loss"]) / Fraction(m["share"]) for m in plan["measures"]}
        assert len(plan["guarantees"]) > 1 or losses == {Fraction(own["loss"])}
    assert [own["universe"] for own in record["epsilon"]] == [
        own["universe"] for own in plan["statement"]["losses"]
    ]
    texts, numbers = leaves_of(record)
    shown = texts | {form for number in numbers for form in forms_of(number)}
    text = (run.release / "certificate.md").read_text(encoding="utf-8")
    for title in ("What is guaranteed", "What the dataset has spent so far", "What is released"):
        section = text.split(f"## {title}")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("|")]
        cells = [cell.strip().strip("`") for row in rows for cell in row.split("|")]
        assert len(cells) > 3
        strange = [
            (cell, number)
            for cell in cells
            if cell not in texts
            for number in re.findall(r"(?<![\w-])[0-9][0-9.,]*(?:e-?[0-9]+)?(?:/[0-9]+)?", cell)
            if number not in shown
        ]
        assert strange == [], title
    guaranteed = text.split("## What is guaranteed")[1].split("\n## ")[0]
    cells = {cell.strip() for cell in guaranteed.replace("\n", "|").split("|")}
    rows = [row for own in record["epsilon"] for row in own["at"]]
    parts = [own for of in ("attributes", "block_within") for own in record[of].values()]
    for row in [*rows, *(row for own in parts for row in own.values())]:
        assert format_epsilon(row["conversion"]) in cells
        if row["exact"] is not None:
            assert format_upper_bound(row["exact"]) in cells
            assert row["exact"] <= row["conversion"] * 1.0001  # A bound, of pure DP the same.
    for own, loss in zip(record["epsilon"], plan["statement"]["losses"], strict=True):
        deltas = {Fraction(row["delta"]) - Fraction(loss["delta"]) for row in own["at"]}
        assert deltas >= {Fraction(1, 10**digits) for digits in (6, 8, 10)}
        assert {format_delta(row["delta"]) for row in own["at"]} <= cells
        exact = [row["exact"] for row in own["at"] if row["exact"] is not None]
        assert exact == sorted(exact), "a smaller delta has a larger epsilon"
    words = " ".join(text.split())
    facts = [*plan["statement"]["unprotected"], *(own["fact"] for own in plan["exact"])]
    assert [fact for fact in facts if fact not in words] == []


def test_every_release_has_a_record_of_the_registrys_form(finished: Finished, shared: Path) -> None:
    schema = yaml.safe_load((shared / "facts/registry/deployments-schema.yaml").read_text())
    released = finished_release(finished.run, Office())
    validate(yaml.safe_load(to_yaml(deployment_record(released, Office()))), schema)
    text = to_markdown(self_assessment(released, Office()))
    assert [own["universe"] in text for own in released["certificate"]["epsilon"]].count(False) == 0


def leaves_of(content: Any) -> tuple[set[str], set[Fraction]]:
    """The texts and the numbers of JSON, fractions written as texts among the numbers."""
    if isinstance(content, dict):
        content = [*content, *content.values()]
    if isinstance(content, list):
        found = [leaves_of(one) for one in content]
        return set().union(*(own for own, _ in found)), set().union(*(own for _, own in found))
    if isinstance(content, str):
        is_number = re.fullmatch(r"[0-9]+(/[0-9]+)?", content)
        return {content}, {Fraction(content)} if is_number else set()
    return set(), {Fraction(content)} if isinstance(content, int | float) else set()


def forms_of(number: Fraction) -> set[str]:
    """A number as pages show it: an epsilon, a bound, a delta, a rho and about how much that is."""
    about = {f"{float(number):.4g}", format_epsilon(float(number)), format_upper_bound(number)}
    return {str(number), format_delta(number), f"{int(number):,}", *about}


def test_the_ledger_has_one_charge_and_all_that_was_published(finished: Finished) -> None:
    run_id = finished.run.read_manifest()["run_id"]
    draws = draws_of(finished)
    losses = [Fraction(draw["parameter"]) for draw in draws]
    for loss, charged in zip(losses, finished.case.charged, strict=True):
        if isinstance(charged, str):
            assert loss == Fraction(charged)
        else:
            assert float(loss) == pytest.approx(charged, rel=1e-6) and loss <= Fraction(charged)
    assert {draw["run_id"] for draw in draws} == {run_id}
    with contextlib.closing(sqlite3.connect(finished.ledger)) as connection:
        rows = connection.execute("SELECT name, digest FROM published WHERE run_id = ?", [run_id])
        known = dict(rows.fetchall())
    made = measurements(finished.run)
    assert made and known == {
        name: hashlib.sha256(content).hexdigest() for name, (_, content) in made.items()
    }


@pytest.mark.usefixtures("in_process")
def test_the_same_command_again_makes_nothing_again(
    finished: Finished, copied: RunDirectory
) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.root.rglob("*.parquet")}
    command = ["run", finished.case.product, str(finished.settings), "--run-dir"]
    assert main([*command, str(copied.root)]) == 0
    after = {path: path.stat().st_mtime_ns for path in copied.root.rglob("*.parquet")}
    changed = {path.name for path in before if before[path] != after.get(path)}
    assert changed <= {"accuracy.parquet", "errors.parquet", "criterion.parquet"}
    assert len(draws_of(finished)) == len(finished.case.charged)


@pytest.mark.parametrize(
    "finished",
    [
        pytest.param("topdown", marks=pytest.mark.soak(6)),
        *cases("on demand", "homes", of=(*PRODUCTS[1:], "on demand", "homes")),
    ],
    indirect=True,
)
@pytest.mark.usefixtures("in_process")
def test_after_the_last_measurement_nothing_confidential_is_read(
    finished: Finished, copied: RunDirectory
) -> None:
    """What is derived comes back the same from measurements and public files alone.

    Threat model: code that reads the truth after measuring.
    """
    drawn = measurements(copied)
    shutil.rmtree(copied.confidential)
    remove_derived(copied)
    assert main(["resume", str(copied.root)]) == 0
    assert measurements(copied) == drawn
    assert contents(copied.release, but="certificate") == contents(
        finished.run.release, but="certificate"
    )
    assert (copied.release / "certificate.md").exists()
    copied.report.unlink()
    assert main(["report", str(copied.root)]) == 0
    assert copied.report.exists()


@pytest.mark.parametrize("finished", cases("register", of=(*PRODUCTS, "register")), indirect=True)
def test_runs_are_compared_in_confidence(
    copied: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(copied.root, tmp_path / "again")
    before = contents(copied.root)
    assert main(["report", str(copied.root), str(tmp_path / "again")]) == 0
    page = Path(capsys.readouterr().out.strip().rpartition(": ")[2])
    assert copied.confidential in page.parents
    assert "again" in page.read_text(encoding="utf-8")
    after = contents(copied.root)
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name for name in changed if not name.startswith("confidential/")} <= {
        "manifest.json",
        ".lock",
    }


@pytest.mark.parametrize(
    "finished", cases("topdown", "homes", of=(*PRODUCTS, "homes")), indirect=True
)
@pytest.mark.usefixtures("in_process", "uncompared")
def test_a_release_that_fails_a_check_is_withheld(
    finished: Finished, copied: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A count that does not go with the others, and of which nothing else tells."""
    copied.release.rename(copied.unchecked_release)
    (copied.checks / "checks.json").unlink()
    path = sorted(copied.root.glob(finished.case.judged))[0]
    table = pq.read_table(path)
    counts = table[finished.case.damaged].to_numpy().copy()
    counts[0] += 1
    place = table.schema.get_field_index(finished.case.damaged)
    pq.write_table(table.set_column(place, table.schema.field(place), [counts]), path)
    record_anew(
        copied, path.relative_to(copied.root).parts[0]
    )  # Else it would be made again, as damaged.
    assert main(["resume", str(copied.root)]) == CheckFailed.exit_code
    assert "withheld" in capsys.readouterr().err
    assert not copied.release.exists()
    assert copied.read_manifest()["status"] == "failed"


def test_the_directory_keeps_its_settings(
    finished: Finished, copied: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are refused, and so is an edit of those that are frozen."""
    command = ["run", finished.case.product, str(finished.settings), "--run-dir", str(copied.root)]
    assert main([*command, "--set", "privacy.dataset=others"]) == 2
    assert "other settings" in capsys.readouterr().err
    copied.settings.write_text(copied.settings.read_text().replace("confidential = true", ""))
    assert main(["resume", str(copied.root)]) == 2
    error = capsys.readouterr().err
    assert "settings.toml has been edited since the run began" in error and error.count("\n") == 1


@pytest.mark.parametrize("finished", cases(of=(*PRODUCTS, "homes")), indirect=True)
def test_commands_tell_of_a_run_before_it_is_charged(
    finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    shutil.copytree(finished.folder, source, ignore=shutil.ignore_patterns("run", "ledger.db*"))
    product, settings = finished.case.product, str(source / "settings.toml")
    assert main(["check", product, settings]) == 0
    assert "in order" in capsys.readouterr().out
    assert main(["budget", product, settings]) == 0
    assert capsys.readouterr().out
    assert main(["budget", product, settings, "--json"]) == 0
    found = {name: one["rho"] for name, one in json.loads(capsys.readouterr().out).items()}
    assert finished.case.budget.items() <= found.items()
    assert not list(source.glob("ledger.db*"))
