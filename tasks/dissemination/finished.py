"""A finished release for templates: its plan, its certificate and derived values.

An office's free texts on a release, which no run can know.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from ..pages.document import render_template
from ..products.acceptance import CERTIFICATE
from ..products.plan import read_plan
from ..products.statement import combine_parts
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..runs.files import read_record
from ..runs.settings import Section
from ..runs.settings_files import sentences, settings_tree


class Office(Section):
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
