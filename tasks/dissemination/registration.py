"""Registration of a release: its registry record, and its self-assessment by the privacy hazards of
[NIST2025]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ..pages.document import Document, Section, to_markdown
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import write_page, write_text
from ..runs.names import did_you_mean
from .deployment_record import deployment_record, missing_texts, to_yaml
from .finished import finished_release, template, texts
from .office import Office, read_office

OPEN = "Open, to be answered by the office"


def self_assessment(released: Mapping[str, Any], office: Office) -> Document:
    """The hazards as questions: answered from the run, by the office, or left open by name.

    Args:
        released: The release, from `finished_release`.
        office: The texts of the office; `assessment` has its answers by hazard.

    Returns:
        A document with a section for each layer of the guideline's pyramid.

    Raises:
        InputRefused: An answer is for no hazard.
    """
    hazards = texts("hazards", released)
    for key in office.assessment:
        if key not in hazards:
            raise InputRefused(f"assessment.{key} is no hazard{did_you_mean(key, hazards)}.")
    sections = [
        Section(layer, tuple(_question_paragraph(key, own, office) for key, own in listed))
        for layer, listed in groupby(hazards.items(), lambda item: item[1]["layer"])
    ]
    left = open_hazards(office)
    begins = (
        f"{len(hazards)} hazards of NIST SP 800-226, each as a question, for the release of "
        f"{released['plan'].dataset} by the run {released['certificate']['run']['run_id']}. The "
        "run answers from its plan and its certificate.",
        f"{len(left)} questions are open: {', '.join(left)}." if left else "No question is open.",
    )
    return Document("Self-assessment of a release", begins, tuple(sections))


def open_hazards(office: Office) -> list[str]:
    """Hazards still to be answered by a person."""
    hazards = template("hazards").items()
    return [key for key, own in hazards if "office" in own and key not in office.assessment]


def _question_paragraph(key: str, hazard: Mapping[str, str], office: Office) -> str:
    """A question with its answers, as one paragraph."""
    said = [hazard["question"]]
    if "evidence" in hazard:
        said.append(f"The run: {hazard['evidence']}")
    if "office" in hazard:
        answer = office.assessment.get(key)
        said.append(f"The office: {answer}" if answer else f"{OPEN} ({key}): {hazard['office']}")
    return " ".join(said)


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
