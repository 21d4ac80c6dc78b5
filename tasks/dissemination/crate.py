"""A release as an RO-Crate for an archive: its files, their provenance and their inputs.

The crate follows the Workflow Run Crate profile 0.5 of RO-Crate 1.1: the flow's source is the
workflow, the run an action that used it, the released files its results. Nothing of the run's
confidential files, and no path of the office's machines, is in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..products.plan import plan_file
from ..runs.directory import RunDirectory, read_tasks
from ..runs.errors import InputRefused
from ..runs.files import sha256_of_file, write_text
from .registration import Office, finished_release

METADATA = "ro-crate-metadata.json"
CONTEXT = (
    "https://w3id.org/ro/crate/1.1/context",
    {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"},
)
"""Defines the terms; RO-Crate 1.1 itself has no term for digests of files."""
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
MEDIA_TYPES = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pl": "text/plain",
    ".py": "text/x-python",
    ".xml": "application/xml",
}
PYTHON = "https://w3id.org/workflowhub/workflow-ro-crate#python"


def write_crate(run: RunDirectory, flow: Path, folder: Path, office: Office) -> Path:
    """Copy a release into a new folder, with its description as an RO-Crate.

    Args:
        run: A finished run that guarantees something.
        flow: The source of the run's flow.
        folder: The crate's folder, which must not exist or be empty.
        office: The texts of the office.

    Returns:
        The crate's metadata file.

    Raises:
        InputRefused: The run has no certified release, or the folder has files.
    """
    released = finished_release(run, office)
    if folder.exists() and any(folder.iterdir()):
        raise InputRefused(f"{folder} has files; name a folder that is empty or not there yet.")
    shutil.copytree(run.release, folder / "release", dirs_exist_ok=True)
    for source, target in (
        (plan_file(run), folder / "plan" / "plan.json"),
        (run.report, folder / "report" / "report.html"),
        (flow, folder / "workflow" / flow.name),
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    ended = _end_time(run) or released["certificate"]["run"]["created"]
    content = metadata(folder, f"workflow/{flow.name}", released, office, ended)
    write_text(folder / METADATA, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return folder / METADATA


def metadata(
    folder: Path, workflow: str, released: Mapping[str, Any], office: Office, ended: str
) -> dict[str, Any]:
    """The description of a crate whose files are in place, as JSON-LD.

    Args:
        folder: Folder of the crate. workflow: The flow's source in it.
        released: The release, from `finished_release`. office: The texts of the office.
        ended: When the run ended, in ISO 8601.
    """
    certificate, plan = released["certificate"], released["plan"]
    own = certificate["run"]
    name = office.name or plan.dataset
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [_file(path, path.relative_to(folder).as_posix()) for path in paths]
    results = [_ref(file["@id"]) for file in files if file["@id"].startswith("release/")]
    curators = [
        _entity(f"#curator-{number}", "Organization", name=curator)
        for number, curator in enumerate(office.data_curators or ("The curator of the data",))
    ]
    inputs = [
        _entity(
            f"#input-{kind}",
            "PropertyValue",
            name=f"confidential table {kind}",
            value=digest,
            description="HMAC-SHA256 of the table under the key of the office's ledger.",
        )
        for kind, digest in own["input_digests"].items()
    ]
    licence = _entity("#licence", "CreativeWork", name=office.license or "No licence is stated.")
    action = _entity(
        f"#run-{own['run_id']}",
        "CreateAction",
        name=f"Run {own['run_id']}",
        description="Measured with noise under one charge of the ledger, estimated and checked.",
        startTime=own["created"].replace("Z", "+00:00"),  # The profile requires an offset.
        endTime=ended,
        instrument=_ref(workflow),
        agent=_ref(curators[0]["@id"]),
        object=[_ref("plan/plan.json"), *(_ref(given["@id"]) for given in inputs)],
        result=results,
        actionStatus="http://schema.org/CompletedActionStatus",
    )
    about = office.description or (
        f"Tables and files released under differential privacy ({plan.product}); the guarantee "
        "stands in release/certificate.html."
    )
    root = _entity(
        "./",
        "Dataset",
        name=name,
        description=about,
        datePublished=str(office.publication_date or own["created"][:10]),
        license=_ref(licence["@id"]),
        author=_refs(curators),
        publisher=_refs(curators),
        conformsTo=[_ref(profile) for profile in PROFILES],
        hasPart=[_ref(file["@id"]) for file in files],
        mainEntity=_ref(workflow),
        mentions=_ref(action["@id"]),
    )
    versions = [
        _ref("https://w3id.org/ro/crate/1.1"),
        _ref("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
    ]
    descriptor = _entity(METADATA, "CreativeWork", about=_ref("./"), conformsTo=versions)
    for file in files:
        if file["@id"] == workflow:
            file |= {
                "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
                "name": f"The flow {plan.product} of Spineflow {released['version']}",
                "programmingLanguage": _ref(PYTHON),
                "version": f"{released['version']} ({own['code_version']})",
            }
    home = "https://www.python.org/"
    python = _entity(PYTHON, "ComputerLanguage", name="Python", url=home, identifier=home)
    profiles = [
        _entity(url, "CreativeWork", name=title, version=url.rpartition("/")[2])
        for url, title in PROFILES.items()
    ]
    graph = [descriptor, root, *files, python, action, *inputs, *curators, licence, *profiles]
    return {"@context": CONTEXT, "@graph": graph}


def _file(path: Path, name: str) -> dict[str, Any]:
    return _entity(
        name,
        "File",
        name=name,
        contentSize=str(path.stat().st_size),
        sha256=sha256_of_file(path),
        encodingFormat=MEDIA_TYPES.get(path.suffix, "application/octet-stream"),
    )


def _entity(identifier: str, kind: str, /, **facts: Any) -> dict[str, Any]:
    return {"@id": identifier, "@type": kind, **facts}


def _refs(entities: Sequence[Mapping[str, Any]]) -> dict[str, str] | list[dict[str, str]]:
    """References to entities; a single one without a list."""
    found = [_ref(entity["@id"]) for entity in entities]
    return found if len(found) > 1 else found[0]


def _ref(name: str) -> dict[str, str]:
    return {"@id": name}


def _end_time(run: RunDirectory) -> str | None:
    """When the last task of a run ended, by its record of work; None without one."""
    ends = [task.ended for task in read_tasks(run).values()]
    return datetime.fromtimestamp(max(ends), UTC).isoformat(timespec="seconds") if ends else None
