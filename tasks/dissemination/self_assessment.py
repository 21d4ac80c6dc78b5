"""A self-assessment of a release by the privacy hazards of [NIST2025]."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from ..pages.document import Document, Section
from ..runs.errors import InputRefused
from ..runs.names import did_you_mean
from .finished import template, texts
from .office import Office

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
