"""The files of a release's registration: its registry record and its self-assessment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..pages.document import to_markdown
from ..runs.directory import RunDirectory
from ..runs.files import write_page, write_text
from .deployment_record import deployment_record, missing_texts, to_yaml
from .finished import finished_release
from .office import read_office
from .self_assessment import open_hazards, self_assessment

FOLDER = "registry"


@dataclass(frozen=True)
class Registration:
    """The written files, and the texts still required from the office, by name."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]
    unanswered: tuple[str, ...]


def register(run: RunDirectory, office_file: Path | None) -> Registration:
    """Write the registry record of a run's release, and its self-assessment, into the run.

    Args:
        run: A finished run that guarantees something.
        office_file: TOML with the texts of the office (`Office`); None leaves them open.

    Raises:
        InputRefused: The run has no certified release, or the file has a key that is no text of an
        office.
    """
    office = read_office(office_file)
    released = finished_release(run, office)
    record, assessment = deployment_record(released, office), self_assessment(released, office)
    folder = run.root / FOLDER
    folder.mkdir(exist_ok=True)
    files = (
        # The registry uses underscores in file names and hyphens in addresses.
        folder / f"{record['url_slug'].replace('-', '_')}.yaml",
        folder / "self_assessment.md",
        folder / "self_assessment.html",
    )
    write_text(files[0], to_yaml(record))
    write_text(files[1], to_markdown(assessment))
    write_page(files[2], assessment)
    return Registration(files, missing_texts(office), tuple(open_hazards(office)))
