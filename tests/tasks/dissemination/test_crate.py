"""The RO-Crate of a release: whole, self-contained, and without anything confidential."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spineflow.tasks.dissemination.crate import METADATA, write_crate
from spineflow.tasks.dissemination.registration import Office
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused

from tests.tasks.dissemination.finished_runs import PERSONS, finished, plan_of, universe


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = finished(tmp_path / "run", plan_of(universe("persons", PERSONS)))
    run.report.parent.mkdir()
    run.report.write_text("<p>report</p>", encoding="utf-8")
    (run.release / "tables").mkdir()
    (run.release / "tables" / "a.csv").write_text("a,b\n", encoding="utf-8")
    (run.root / "confidential").mkdir()
    (run.root / "confidential" / "truth.csv").write_text("1", encoding="utf-8")
    return run


def references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from references(one)
    elif isinstance(value, dict) and set(value) == {"@id"}:
        yield value["@id"]


def test_a_crate_describes_each_of_its_files_and_nothing_else(
    run: RunDirectory, tmp_path: Path
) -> None:
    folder = tmp_path / "crate"
    path = write_crate(run, Path(__file__), folder, Office(data_curators=("A", "B")))
    entities = {own["@id"]: own for own in json.loads(path.read_text("utf-8"))["@graph"]}
    files = {own["@id"]: own for own in entities.values() if "File" in own["@type"]}
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert set(files) == there - {METADATA}
    assert {"release/certificate.json", "release/tables/a.csv", "plan/plan.json"} <= set(files)
    for name, own in files.items():
        assert own["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    referred = {
        name for own in entities.values() for one in own.values() for name in references(one)
    }
    assert {name for name in referred - set(entities) if "ro/crate/1.1" not in name} == set()
    results = set(references(entities["#run-one"]["result"]))
    assert results == {name for name in files if name.startswith("release/")}


def test_a_crate_says_nothing_confidential_and_where_nothing_lies(
    run: RunDirectory, tmp_path: Path
) -> None:
    path = write_crate(run, Path(__file__), tmp_path / "crate", Office())
    assert str(tmp_path) not in path.read_text("utf-8")
    assert not list((tmp_path / "crate").rglob("truth.csv"))


TYPES = ("ComputerLanguage", "CreateAction", "CreativeWork", "Dataset", "Organization",
         "PropertyValue", "SoftwareSourceCode")  # fmt: skip
PROPERTIES = (
    "about", "actionStatus", "agent", "author", "contentSize", "datePublished", "description",
    "encodingFormat", "endTime", "hasPart", "identifier", "instrument", "license", "mainEntity",
    "mentions", "name", "object", "programmingLanguage", "publisher", "result", "startTime", "url",
    "value", "version",
)  # fmt: skip
CONTEXT = {
    **{name: f"http://schema.org/{name}" for name in (*TYPES, *PROPERTIES)},
    "ComputationalWorkflow": "https://bioschemas.org/ComputationalWorkflow",
    "File": "http://schema.org/MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
"""Terms of RO-Crate 1.1, as its context on the network defines them."""


@pytest.mark.slow
def test_a_crate_passes_every_required_check_of_the_validator_of_the_community(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """roc-validator, for the Workflow Run Crate profile and all that this builds on."""
    services = pytest.importorskip("rocrate_validator.services")
    http = pytest.importorskip("rocrate_validator.utils.http")
    content = json.dumps({"@context": CONTEXT})
    context = SimpleNamespace(
        status_code=200,
        headers={"Content-Type": "application/ld+json"},
        text=content,
        content=content.encode(),
        json=lambda: json.loads(content),
    )
    asked = set[str]()
    monkeypatch.setattr(
        http.HttpRequester,
        "get",
        lambda self, address, **options: asked.add(address) or context,
        raising=False,
    )
    folder = tmp_path / "crate"
    write_crate(run, Path(__file__), folder, Office(data_curators=("A", "B")))
    settings = services.ValidationSettings(
        rocrate_uri=str(folder), profile_identifier="workflow-run-crate-0.5"
    )
    found = services.validate(settings)
    assert [issue.message for issue in found.get_issues()] == []
    assert found.passed() and len(found.executed_checks) > 50
    assert asked == {"https://w3id.org/ro/crate/1.1/context"}


def test_a_folder_with_files_is_kept(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="has files"):
        write_crate(run, Path(__file__), run.release, Office())
