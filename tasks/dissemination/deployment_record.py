"""A record of a release for the registry of deployments of differential privacy, as YAML.

The registry (opendp/deployments-registry-data) takes one file for each deployment, in the form of
its schema. Figures come from the run's certificate, free texts from the office.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import yaml

from ..pages.numbers import format_delta
from .finished import texts
from .office import Office

MISSING = "To be written by the office."
"""Placeholder for a required text that only an office can give and has not given."""

DEFINITIONS = {True: "Zero-concentrated DP", False: "Pure DP"}

SECTIONS = (
    "basic",
    "dp_variant",
    "privacy_loss",
    "deployment_model",
    "accounting",
    "implementation",
    "administrative",
)
"""Sections of the schema, in its order."""

OF_OFFICE = {
    "basic": (
        "name",
        "data_curators",
        "description",
        "intended_use",
        "data_product_type",
        "data_product_region",
        "data_product_sector",
    ),
    "dp_variant": ("data_domain",),
    "deployment_model": ("actors", "release_type", "release_type_details"),
    "implementation": ("preprocessing_and_hyperparameter_tuning", "justification"),
    "administrative": ("sources", "notes", "registry_authors"),
}
"""The fields of an office by section of the schema; they precede a run's."""

DETAILED = ("data_domain", "preprocessing_and_hyperparameter_tuning", "justification")
"""Fields of a third-tier registry record in addition to a run's."""


def deployment_record(released: Mapping[str, Any], office: Office) -> dict[str, Any]:
    """The registry's record of a release, in the order of its schema.

    Texts that the schema requires and the office has not given are `MISSING`; others are left out.
    The tier is 3 if the office has given all texts that only it knows, and 2 otherwise.

    Args:
        released: The release, from `finished_release`.
        office: The texts of the office.

    Returns:
        A mapping that the registry's schema accepts, with the status of a draft.
    """
    certificate, together = released["certificate"], released["together"]
    sections: dict[str, dict[str, Any]] = {}
    written = texts("record", released)
    for section in SECTIONS:
        own = {field: getattr(office, field) for field in OF_OFFICE.get(section, ())}
        said: dict[str, Any] = {**written.get(section, {})}
        if section == "basic":
            said |= dict.fromkeys(("name", "intended_use", "data_product_region"), MISSING)
            said["data_curators"] = [MISSING]
        ordered = {field: _plain(own[field] or said.get(field)) for field in own}
        sections[section] = {field: value for field, value in ordered.items() if value} | {
            field: value for field, value in said.items() if field not in own and value
        }
    basic = sections["basic"]
    created = certificate["run"]["created"][:10]
    basic["publication_date"] = str(office.publication_date or created)
    is_approximate = not released["zcdp"] and released["own_delta"] != "0"
    variant = "Approximate DP" if is_approximate else DEFINITIONS[released["zcdp"]]
    sections["dp_variant"] = {"variant_name": variant} | sections["dp_variant"]
    sections["privacy_loss"]["privacy_parameters"] = _parameters(together)
    model = {"model_name": "Central", "data_source_type": "Static"}
    model |= {"access_type": "Non-interactive"}
    is_alone = released["runs"]["runs"] == 1
    model |= {"release_type": "One release" if is_alone else "Many releases"}
    sections["deployment_model"] = model | sections["deployment_model"]
    if not office.registry_authors:
        # The registry requires authors of sources or notes to sign them.
        sections.pop("administrative")
    is_whole = basic["name"] != MISSING and all(getattr(office, field) for field in DETAILED)
    return {
        "url_slug": office.url_slug
        or _slug(f"{office.name or released['plan'].dataset} {created[:4]}"),
        "status": "Draft",
        "tier": 3 if is_whole else 2,
        "deployment": sections,
    }


def missing_texts(office: Office) -> tuple[str, ...]:
    """The texts that only an office can give, and has not given, by name."""
    fields = (field for own in OF_OFFICE.values() for field in own)
    optional = ("release_type", "release_type_details", "actors", "description", "notes")
    return tuple(name for name in fields if name not in optional and not getattr(office, name))


def to_yaml(record: Mapping[str, Any]) -> str:
    """A record as YAML, with blocks for texts of several lines.

    >>> print(to_yaml({"name": "Counts", "facts": "- one\\n- two"}), end="")
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


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
