"""A finished release for templates, its registry record, and its self-assessment by the privacy
hazards of [NIST2025].

The registry (opendp/deployments-registry-data) takes one YAML file for each deployment of
differential privacy, in the form of its schema. Figures come from the run's plan and certificate,
free texts from the office: no run can know them.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError

from ..pages.document import Document, document_of, render_template, to_markdown
from ..pages.numbers import format_delta
from ..products.acceptance import CERTIFICATE
from ..products.plan import combine_parts, read_plan
from ..runs import settings
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import read_record, write_page, write_text
from ..runs.names import did_you_mean
from ..runs.settings_files import sentences, settings_tree


class Office(settings.Section):
    """The texts of an office on a release, for its registry record and its self-assessment.

    Names follow the registry's schema where it has the field.
    """

    model_config = ConfigDict(str_strip_whitespace=True)

    name: str = Field(default="", description="Name of the data product.")
    data_curators: tuple[str, ...] = Field(
        default=(), description="Publishers of the data product."
    )
    description: str = Field(default="", description="The data product in few sentences.")
    intended_use: str = Field(default="", description="Purpose of the data product.")
    data_product_region: str = Field(default="", description="The region that the data describe.")
    data_product_sector: Literal[
        "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"
    ] = "Government"
    data_product_type: Literal["Summary statistics", "Dataset", "Synthetic data"] = (
        "Summary statistics"
    )
    publication_date: date | None = Field(default=None, description="Default: the day of the run.")
    url_slug: str = Field(
        default="", pattern=r"^[a-z0-9-]*$", description="Default: from the name."
    )
    data_domain: str = Field(default="", description="The datasets that could have been protected.")
    actors: str = Field(default="", description="Access of each actor, and trusted parties.")
    release_type: Literal["One release", "Many releases"] | None = Field(
        default=None, description="Default: by the runs that the ledger has for the dataset."
    )
    release_type_details: str = Field(default="", description="Plans for further releases.")
    preprocessing_and_hyperparameter_tuning: str = Field(
        default="", description="How data were edited, and on which data the budget was chosen."
    )
    security: str = Field(default="", description="Access to data and ledger; added to mechanisms.")
    justification: str = Field(
        default="", description="Why these parameters, and how they were validated."
    )
    sources: str = Field(default="", description="Papers and pages on the release.")
    notes: str = ""
    license: str = Field(default="", description="Address or words of the licence.")
    registry_authors: tuple[str, ...] = Field(default=(), description="Authors of the record.")
    assessment: dict[str, str] = Field(
        default_factory=dict, description="Answers of the self-assessment, by hazard."
    )


def read_office(path: Path | None) -> Office:
    """The texts of an office, from a TOML file, or none; raises InputRefused for an invalid
    file.
    """
    if path is None:
        return Office()
    content = settings_tree(path)
    try:
        return Office.model_validate(content)
    except ValidationError as error:
        raise InputRefused(f"{path.name}: {sentences(Office, error, content)}.") from None


TEMPLATES = Path(__file__).with_name("templates")


def finished_release(run: RunDirectory, office: Office) -> dict[str, Any]:
    """Values of a run and its release that templates may use, by name.

    Raises InputRefused for a run without a certified release, and for one that guarantees nothing.
    """
    path = run.release / f"{CERTIFICATE}.json"
    if not path.exists():
        raise InputRefused(
            f"{run.root} has no {CERTIFICATE}.json in {run.release.name}/; name a finished run of "
            "version 0.3 or later."
        )
    certificate = read_record(path)
    if "certificates" in certificate:
        parts = ", ".join(str(run.root / name) for name in certificate["certificates"])
        raise InputRefused(f"{run.root} is a run of several products; name one of {parts}.")
    plan = read_plan(run)
    if plan.statement.why_not is not None:
        raise InputRefused(
            f"{run.root} guarantees nothing, so that there is nothing to register: "
            f"{plan.statement.why_not}."
        )
    if certificate["ledger"] is None:
        raise InputRefused(
            f"{run.root} measured nothing; name the run whose measurements it was made from."
        )
    losses = plan.statement.losses
    measures = [own for universe in plan.universes for own in universe.measured]
    draws = certificate["ledger"]["draws"]
    return {
        "plan": plan,
        "certificate": certificate,
        "office": office,
        "version": version("spineflow"),
        "together": combine_parts(plan.statement),
        "losses": {loss.universe: loss for loss in losses},
        "units": [f"one record of {loss.universe}" for loss in losses],
        "zcdp": not any(loss.is_pure for loss in losses),
        "own_delta": str(sum((loss.promised.delta for loss in losses), Fraction(0))),
        "largest": max(own["conversion"] for own in certificate["epsilon"]),
        "measures": measures,
        "answers": sum(own.answers or 0 for own in measures),
        "deviations": sorted(own.deviation for own in measures),
        "mechanisms": sorted({own.mechanism.replace("_", " ") for own in plan.universes}),
        "runs": {
            "draws": len(draws),
            "runs": len({draw["run_id"] for draw in draws}),
            "products": sorted({draw["product"] for draw in draws}),
        },
        "checks": sorted({own["name"].replace("_", " ") for own in certificate["checks"]}),
        "has_microdata": any(name.startswith("mdf_") for name in certificate["files"]),
    }


def template(name: str) -> dict[str, dict[str, str]]:
    """The tables of a template file, unrendered."""
    return tomllib.loads((TEMPLATES / f"{name}.toml").read_text(encoding="utf-8"))


def texts(name: str, released: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The tables of a template file, rendered with the values of a release."""
    return {
        section: {key: render_template(text, released) for key, text in own.items()}
        for section, own in template(name).items()
    }


DETAILED = ("data_domain", "preprocessing_and_hyperparameter_tuning", "justification")
"""Fields of a third-tier registry record in addition to a run's."""

OPTIONAL = (
    *("actors", "description", "notes", "publication_date", "release_type", "release_type_details"),
)
"""Texts of the office that a run has too, or that nothing requires."""


def deployment_record(released: Mapping[str, Any], office: Office) -> dict[str, Any]:
    """The registry's record of a release, in the order of its schema.

    Texts that the schema requires and the office has not given say so; others are left out.
    The tier is 3 if the office has given all texts that only it knows, and 2 otherwise.

    Args:
        released: The release, from `finished_release`.
        office: The texts of the office.

    Returns:
        A mapping that the registry's schema accepts, with the status of a draft.
    """
    sections: dict[str, dict[str, Any]] = {}
    for section, written in texts("record", released).items():
        own = {field: _field(office, field, text) for field, text in written.items()}
        sections[section] = {field: value for field, value in own.items() if value}
    sections["privacy_loss"]["privacy_parameters"] = _parameters(released["together"])
    if not office.registry_authors:
        # The registry requires authors of sources or notes to sign them.
        sections.pop("administrative")
    is_whole = office.name and all(getattr(office, field) for field in DETAILED)
    created = released["certificate"]["run"]["created"]
    return {
        "url_slug": office.url_slug
        or _slug(f"{office.name or released['plan'].dataset} {created[:4]}"),
        "status": "Draft",
        "tier": 3 if is_whole else 2,
        "deployment": sections,
    }


def missing_texts(office: Office) -> tuple[str, ...]:
    """The texts that only an office can give, and has not given, by name."""
    fields = (field for own in template("record").values() for field in own)
    wanted = (name for name in fields if name in Office.model_fields and name not in OPTIONAL)
    return tuple(name for name in wanted if not getattr(office, name))


def _field(office: Office, field: str, text: str) -> str | list[str]:
    """The office's text of a field, or else the run's."""
    own = getattr(office, field, None)
    if isinstance(own, tuple):
        return list(own) or [text] * bool(text)
    return str(own or text)


def to_yaml(record: Mapping[str, Any]) -> str:
    r"""A record as YAML, with blocks for texts of several lines.

    >>> print(to_yaml({"name": "Counts", "facts": "- one\n- two"}), end="")
    name: Counts
    facts: |-
      - one
      - two
    """
    return yaml.dump(record, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, in which every line break is kept."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # YAML has no blocks with blanks before a line break.
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    style = "|" if "\n" in lines else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", lines, style=style)


_Dumper.add_representer(str, _block)


def _parameters(together: Any) -> dict[str, float | str]:
    """The parameters of the composed loss; the epsilon of a rho is always given with its rho and
    delta.
    """
    delta = together.whole_delta
    found: dict[str, float | str] = {"epsilon": _round_up(together.epsilon)}
    if delta:
        found["delta"] = format_delta(delta)
    if not together.is_pure:
        found["rho"] = _round_up(together.promised.parameter)
    return found


def _round_up(loss: Fraction | float) -> float:
    """A loss to four decimals, so that a record never states less than the certificate."""
    return math.ceil(loss * 10_000) / 10_000


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


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
    left, template = open_hazards(office), "dissemination/templates/self_assessment.md.j2"
    return document_of(template, hazards=hazards, left=left, **released)


def open_hazards(office: Office) -> list[str]:
    """Hazards still to be answered by a person."""
    hazards = template("hazards").items()
    return [key for key, own in hazards if "office" in own and key not in office.assessment]


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
