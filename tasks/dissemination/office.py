"""An office's free texts on a release, which no run can know."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from ..runs.errors import InputRefused
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
