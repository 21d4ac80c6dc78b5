"""Problems of settings, in sentences: the key, and its possible values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from .names import did_you_mean, printable_name

Location = tuple[str | int, ...]
"""Keys and positions that lead to a value."""

_BRANCH = re.compile(
    r"(function-|constrained-|literal\[|tuple|dict\[|list\[|nullable|is-instance|lax-|union"
    r"|(str|int|bool|float)$|[A-Z]\w*$)"
)
"""Parts of a validator's location that name a branch of the type instead of a key."""

_BARE = re.compile(r"[\w-]{1,40}")
_IS_A_KEY = "[key]"

_WORDS = {
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "mapping_type": "a table",
    "model_attributes_type": "a table",
    "union_tag_invalid": "one of {expected_tags}",
    "string_pattern_mismatch": "a text of the form {pattern}",
}
"""Possible values, by the kind of the complaint, where pydantic's words name no type of TOML."""

_SENTENCES = {
    "missing": "the setting '{key}' is missing; add it, or name a preset that has it",
    "too_few": "{key} has too few entries",
    "too_short": "{key} needs {min_length} or more entries",
    "too_long": "{key} takes {max_length} entries or fewer",
    "string_too_short": "{key} must not be empty",
}
"""Whole clauses, by the kind of the complaint."""


def dotted_path(location: Location) -> str:
    """Keys and positions as people write them, such as `census.tables.0.name`; other keys than bare
    ones are quoted.
    """
    return ".".join(
        str(part) if isinstance(part, int) or _BARE.fullmatch(part) else printable_name(part)
        for part in location
    )


def sentences(model: type[BaseModel], error: ValidationError, tree: Mapping[str, Any]) -> str:
    """A model's problems with settings, without the last full stop: one clause, or a line each."""
    written: Mapping[str, str] = getattr(model, "WRITTEN_AS", {})
    found: dict[Location, list[str]] = {}
    for complaint in error.errors(include_url=False):
        location, clause = _clause(complaint, tree, written)
        found.setdefault(location, []).append(clause)
    # A shared problem is reported at its own place, not at the section that takes it over.
    taking = {(name,) for name in written.values()}
    # Of a table, what it might be instead does not matter beside a problem inside it.
    parents = {other[:length] for other in found for length in range(len(other))}
    clauses = [
        _join_alternatives(dotted_path(location), own)
        for location, own in found.items()
        if (location[:1] not in taking or location[1:] not in found)
        and not (location in parents and all(" must be " in clause for clause in own))
    ]
    if len(clauses) == 1:
        return clauses[0]
    return f"{len(clauses)} problems:\n  " + ";\n  ".join(clauses)


def _join_alternatives(key: str, clauses: Sequence[str]) -> str:
    """One clause for all branches of a key's type: the first that says more than what it must be,
    or everything that it may be."""
    values = [one.partition(f"{key} must be ")[2] for one in clauses]
    if "" in values:
        return clauses[values.index("")]
    return f"{key} must be {' or '.join(dict.fromkeys(values))}"


def _clause(
    complaint: Mapping[str, Any], tree: Mapping[str, Any], written: Mapping[str, str]
) -> tuple[Location, str]:
    """One complaint of the validator, where settings files have it, as a clause."""
    location = _without_branches(complaint["loc"], tree)
    location = tuple(written.get(str(part), part) for part in location[:1]) + location[1:]
    kind, facts = complaint["type"], complaint.get("ctx", {})
    if kind.startswith("union_tag"):
        location = (*location, facts["discriminator"].strip("'"))
        kind = "missing" if kind == "union_tag_not_found" else kind
    elif kind == "missing" and location and isinstance(location[-1], int):
        location, kind = location[:-1], "too_few"
    key = dotted_path(location)
    if kind == "extra_forbidden":
        known = sorted(complaint["input"])
        near = did_you_mean(str(location[-1]), known)
        return location, f"unknown setting {key!r}{near}; known here: {', '.join(known)}"
    if kind in ("value_error", "assertion_error"):
        return location, f"{key} {facts['error']}".lstrip()
    if kind in _SENTENCES:
        return location, _SENTENCES[kind].format(key=key, **facts)
    said = complaint["msg"].removeprefix("Input should be ")
    value = _WORDS[kind].format(**facts) if kind in _WORDS else said
    return location, f"{key} must be {value}"


def _without_branches(location: Sequence[Any], tree: Any) -> Location:
    """The keys and positions of a complaint, without the branches of types."""
    kept: list[str | int] = []
    node: Any = tree
    for part in location:
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(part, int) and isinstance(node, list | tuple):
            node = node[part] if part < len(node) else None
        elif isinstance(part, int) and node is not None:
            continue  # A single value, accepted for a list of one.
        elif isinstance(part, str) and (part == _IS_A_KEY or _BRANCH.match(part)):
            continue
        elif isinstance(node, Mapping) and part in node.values() and part != location[-1]:
            continue  # The tag of a table's kind.
        else:
            node = None
        kept.append(part)
    return tuple(kept)
