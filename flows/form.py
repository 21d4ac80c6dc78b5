"""The forms with which the Prefect UI starts runs: settings as typed fields beside the file.

A field bears the key of the setting that it stands for. Prefect's server checks what is typed
against the form's schema before it creates a run; the settings themselves are validated when the
run begins. What is left empty is as the settings file, its preset or the default has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import tomli_w
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from ..tasks.products.presets import PRESETS
from ..tasks.runs.exact_types import ExactTypes

SUPPLEMENTAL, HOUSEHOLDS = "supplemental_dhc", "detailed_households"
"""How the names of presets begin that are not of the TopDown Algorithm."""

_PRESETS = sorted(file.stem for file in PRESETS.glob("*.toml"))
PRESET_NAMES = tuple(name for name in _PRESETS if not name.startswith((SUPPLEMENTAL, HOUSEHOLDS)))
SUPPLEMENTAL_PRESETS = tuple(name for name in _PRESETS if name.startswith(SUPPLEMENTAL))
HOUSEHOLDS_PRESETS = tuple(name for name in _PRESETS if name.startswith(HOUSEHOLDS))

FULL_PATH = r"^(/|[a-z][a-z0-9+.-]*://)"
"""A worker has a working directory of its own, so that paths in a form must be full ones."""

FRACTION = r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(/\s*[1-9][0-9]*\s*)?$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def setting(key: str, title: str, description: str, **checks: Any) -> Any:
    """A field of a form that stands for a setting; None leaves the setting as it is."""
    return Field(
        default=None,
        title=title,
        description=description,
        json_schema_extra=_typed(key),
        **checks,
    )


def path(key: str, title: str, description: str) -> Any:
    """A field for a full path or a URL."""
    return setting(key, title, description, pattern=FULL_PATH)


def fraction(key: str, title: str, description: str) -> Any:
    """A field for an exact fraction such as 1/2 or 0.05."""
    return setting(key, title, description, pattern=FRACTION)


def _typed(key: str) -> Callable[[dict[str, Any]], None]:
    """What makes a field's schema that of its type alone: a form leaves empty fields out."""

    def change(schema: dict[str, Any]) -> None:
        alternatives = [kind for kind in schema.pop("anyOf", []) if kind.get("type") != "null"]
        for kind in alternatives:
            schema.update(kind)
        schema.pop("default", None)
        schema["setting"] = key

    return change


class SettingsForm(ExactTypes):
    """The settings that every product has; products add their own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str | None = setting(
        "privacy.dataset",
        "Dataset",
        "The ledger adds up everything drawn from these people under this name.",
        pattern=NAME,
    )
    ledger: str | None = path(
        "privacy.ledger", "Ledger", "Full path of the privacy-loss ledger, made by ledger init."
    )
    # Not a switch: a form shows one as off before anybody has touched it.
    disclosure: Literal["confidential", "may be disclosed"] | None = setting(
        "input.confidential",
        "The input",
        "Confidential unless it says otherwise; pages then show no counts of it.",
    )
    publish_to: str | None = path(
        "release.publish_to",
        "Publish to",
        "Folder or URL to which the checked release is copied.",
    )
    runner: Literal["auto", "threads", "processes", "dask"] | None = setting(
        "run.runner", "Runner", "What runs the tasks; the release does not depend on it."
    )
    workers: int | None = setting("run.workers", "Workers", "How many tasks run at once.", ge=1)
    dask_address: str | None = setting(
        "run.dask_address", "Dask scheduler", "Address such as tcp://scheduler:8786."
    )

    @model_serializer(mode="wrap")
    def _filled_in(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What was filled in alone: the schema has no empty values."""
        return {name: value for name, value in serialise(self).items() if value is not None}

    def overrides(self) -> Iterator[str]:
        """What was filled in, as `section.key=value` in TOML."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                value = value == "confidential" if name == "disclosure" else value
                schema: dict[str, Any] = {}
                assert callable(field.json_schema_extra)
                field.json_schema_extra(schema)
                text = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
                yield f"{schema['setting']}={text}"


class CensusForm(SettingsForm):
    """The settings of products of census tables."""

    persons: str | None = path("input.persons", "Persons", "The persons table.")
    units: str | None = path("input.units", "Units", "The units table.")
    geography: str | None = path("input.geography", "Geography", "The geography reference file.")


Preset = Literal[PRESET_NAMES]  # type: ignore[valid-type]
SupplementalPreset = Literal[SUPPLEMENTAL_PRESETS]  # type: ignore[valid-type]
HouseholdsPreset = Literal[HOUSEHOLDS_PRESETS]  # type: ignore[valid-type]


class TopdownForm(CensusForm):
    """The settings of the TopDown Algorithm that are changed most."""

    preset: Preset | None = setting(
        "preset", "Preset", "Budgets, query strategies, passes and rules of a published run."
    )
    rho_persons: str | None = fraction(
        "budget.persons.rho", "rho of persons", "Budget of persons, as a fraction such as 1/2."
    )
    rho_units: str | None = fraction(
        "budget.units.rho", "rho of units", "Budget of housing units, as a fraction."
    )
    universes: list[str] | None = setting(
        "run.universes", "Universes", "What is released, such as persons and units."
    )
    spine: Literal["conventional", "aian", "optimized", "dhc"] | None = setting(
        "geography.spine", "Spine", "The kind of tree of geounits that noise is spent on."
    )
    estimator: Literal["topdown", "block_by_block", "full_information"] | None = setting(
        "run.estimator", "Estimator", "How noisy measurements become counts."
    )


class EstimateForm(SettingsForm):
    """The settings of estimates from measurements that are changed most."""

    measurements: str | None = path(
        "input.measurements", "Measurements", "A run's measurements/ or the published layout."
    )
    geography: str | None = path("input.geography", "Geography", "The geography reference file.")
    estimator: Literal["topdown", "block_by_block", "full_information"] | None = setting(
        "run.estimator", "Estimator", "How noisy measurements become counts."
    )


class DetailedGroupsForm(CensusForm):
    """The settings of detailed groups that are changed most."""

    parameters: str | None = path(
        "input.parameters", "Parameters", "Folder with config.json and the specification files."
    )
    data: str | None = path(
        "input.data", "Data", "Folder with person-records.txt and GRF-C.txt, or the census tables."
    )
    definition: Literal["zcdp", "puredp"] | None = setting(
        "mechanism.definition", "Privacy definition", "Overrides that of config.json."
    )


class DetailedHouseholdsForm(CensusForm):
    """The settings of households by detailed group that are changed most."""

    preset: HouseholdsPreset | None = setting(
        "preset", "Preset", "Budgets and thresholds of the 2020 production run."
    )
    parameters: str | None = path(
        "input.parameters", "Parameters", "Folder with config.json and the specification files."
    )
    groups: str | None = path(
        "input.groups", "Groups", "Folder of the finished run of detailed groups."
    )
    definition: Literal["zcdp", "puredp"] | None = setting(
        "mechanism.definition", "Privacy definition", "Overrides that of config.json."
    )


class GroupSizesForm(CensusForm):
    """The settings of group sizes that are changed most."""

    sizes: str | None = path("input.sizes", "Sizes", "Table with region, size and count.")
    regions: str | None = path("input.regions", "Regions", "Table with level, region, parent.")
    epsilon: str | None = fraction("privacy.epsilon", "epsilon", "Budget of pure privacy.")
    rho: str | None = fraction("privacy.rho", "rho", "Budget of zero-concentrated privacy.")
    largest_size: int | None = setting(
        "mechanism.largest_size", "Largest size", "Larger groups count as this size.", ge=1
    )


class TripsForm(SettingsForm):
    """The settings of trips that are changed most."""

    trips: str | None = path("input.trips", "Trips", "One row per pair of finest areas.")
    origin: str | None = setting("input.origin", "Origin", "Column of origins.")
    destination: str | None = setting("input.destination", "Destination", "Column of destinations.")
    count: str | None = setting("input.count", "Count", "Column of counts.")
    areas: str | None = path("input.areas", "Areas", "Table with level, area, parent.")
    mechanism: (
        Literal[
            "inftda",
            "tda_l2",
            "tda_chebyshev",
            "inftda_full_information",
            "gaussian_leaves",
            "stability_histogram",
        ]
        | None
    ) = setting("mechanism.name", "Mechanism", "How trips are measured and estimated.")
    epsilon: str | None = fraction("privacy.epsilon", "epsilon", "Budget, together with delta.")
    delta: str | None = fraction("privacy.delta", "delta", "Below one over the number of persons.")
    rho: str | None = fraction("privacy.rho", "rho", "Budget of zero-concentrated privacy instead.")


class SupplementalDhcForm(CensusForm):
    """The settings of the supplemental tables that are changed most."""

    preset: SupplementalPreset | None = setting(
        "preset", "Preset", "Budgets of the 2020 production run."
    )
    levels: list[str] | None = setting(
        "geography.levels", "Levels", "Areas that are tabulated, such as US and State."
    )


class DesignForm(CensusForm):
    """The settings of a design and its comparison that are changed most."""

    replicates: int | None = setting(
        "comparison.replicates", "Replicates", "Releases of each split.", ge=2
    )


class TuneForm(CensusForm):
    """The settings of a search that are changed most."""

    at_most: float | None = setting(
        "criterion.at_most", "Largest error", "The largest error of the criterion that will do."
    )
    replicates: int | None = setting(
        "search.replicates", "Replicates", "Runs per trial, with noise of their own.", ge=1
    )


class EvidenceForm(CensusForm):
    """The settings of a comparison of protection methods that are changed most."""

    draws: int | None = setting("evidence.draws", "Draws", "Releases of every random method.", ge=1)
    blocks: int | None = setting(
        "evidence.blocks", "Blocks", "Areas that are reconstructed; left empty, all.", ge=1
    )
