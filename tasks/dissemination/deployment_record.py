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
from .finished import template, texts
from .office import Office

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
