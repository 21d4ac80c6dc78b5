"""A release as an RO-Crate for an archive: its files, their provenance and their inputs.

The crate follows the Workflow Run Crate profile 0.5 of RO-Crate 1.1; the template `crate.json.j2`
describes it. Nothing of the run's confidential files, and no path of the office's machines, is in
it.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from ..pages.document import render_page
from ..products.plan import plan_file
from ..runs.directory import RunDirectory, read_tasks
from ..runs.errors import InputRefused
from ..runs.files import sha256_of_file, write_text
from .registration import Office, finished_release

METADATA = "ro-crate-metadata.json"
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
    files = [
        {
            "name": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "sha256": sha256_of_file(path),
            "type": MEDIA_TYPES.get(path.suffix, "application/octet-stream"),
        }
        for path in sorted(path for path in folder.rglob("*") if path.is_file())
    ]
    ends = [task.ended for task in read_tasks(run).values()]
    described = render_page(
        "dissemination/templates/crate.json.j2",
        **released,
        metadata=METADATA,
        workflow=f"workflow/{flow.name}",
        files=files,
        results=[file["name"] for file in files if str(file["name"]).startswith("release/")],
        ended=datetime.fromtimestamp(max(ends), UTC).isoformat(timespec="seconds") if ends else "",
    )
    text = json.dumps(json.loads(described), indent=1, ensure_ascii=False)
    write_text(folder / METADATA, f"{text}\n")
    return folder / METADATA
