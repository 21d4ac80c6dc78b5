"""Problems of settings, in sentences: the key, and its possible values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from .names import did_you_mean, printable_name

MOST_SHOWN = 5
"""Largest number of problems in one message."""

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


@dataclass(frozen=True)
class Problem:
    """A problem at a place of the settings.

    must_be : the possible values, where that is the whole message.
    text : the whole clause otherwise.
    known : the known keys, for an unknown key.
    is_missing : whether the key has no value.
    branches : branches of its type that the validator took to get there.
    """

    location: Location
    must_be: str = ""
    text: str = ""
    known: frozenset[str] | None = None
    is_missing: bool = False
    branches: int = 0

    @property
    def key(self) -> str:
        """The dotted key."""
        return dotted_path(self.location)


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
    found = _problems(model, error, tree)
    clauses = [problem.text for problem in found[:MOST_SHOWN]]
    if len(found) == 1:
        return clauses[0]
    more = len(found) - len(clauses)
    if more:
        clauses.append(f"and {more} more")
    return f"{len(found)} problems:\n  " + ";\n  ".join(clauses)


def _problems(
    model: type[BaseModel], error: ValidationError, tree: Mapping[str, Any]
) -> list[Problem]:
    """The problems, one for each place: unknown keys, wrong values, and missing keys last."""
    written: Mapping[str, str] = getattr(model, "WRITTEN_AS", {})
    complaints = error.errors(include_url=False)
    # A list is reported as too short if its entries are wrong.
    below = {one["loc"][:n] for one in complaints for n in range(len(one["loc"]))}
    told = (one for one in complaints if one["type"] != "too_short" or one["loc"] not in below)
    every = [_problem(one, tree, written) for one in told]
    # A shared problem is reported at its own place, not at the section that takes it over.
    places = {one.location for one in every}
    taking = {(name,) for name in written.values()}
    raw = [one for one in every if one.location[:1] not in taking or one.location[1:] not in places]
    at: dict[Location, list[Problem]] = {}
    for problem in raw:
        at.setdefault(problem.location, []).append(problem)
    unknown, wrong, meant = [], [], set()
    for location, problems in at.items():
        # A rejected branch of a type is of no interest if a problem below it is known.
        is_above = any(location == other[: len(location)] != other for other in at)
        kept = [one for one in problems if not (is_above and one.must_be and one.branches)]
        known = frozenset[str]().union(*(one.known for one in kept if one.known is not None))
        if known:
            near = did_you_mean(str(location[-1]), sorted(known))
            meant |= {dotted_path((*location[:-1], name)) for name in known if repr(name) in near}
            text = f"{kept[0].text}{near}; known here: {', '.join(sorted(known))}"
            unknown.append(replace(kept[0], text=text))
        elif worded := [one for one in kept if one.text]:
            wrong.append(worded[0])
        elif kept:
            alternatives = " or ".join(dict.fromkeys(one.must_be for one in kept))
            wrong.append(replace(kept[0], text=f"{kept[0].key} must be {alternatives}"))
    # A section with a misspelt name is also missing under its right one.
    rest = [one for one in wrong if not (one.is_missing and one.key in meant)]
    return [*unknown, *sorted(rest, key=lambda one: one.is_missing)]


def _problem(
    complaint: Mapping[str, Any], tree: Mapping[str, Any], written: Mapping[str, str]
) -> Problem:
    """One complaint of the validator, where settings files have it."""
    location, branches = _without_branches(complaint["loc"], tree)
    location = tuple(written.get(str(part), part) for part in location[:1]) + location[1:]
    kind, facts = complaint["type"], complaint.get("ctx", {})
    if kind.startswith("union_tag"):
        location = (*location, facts["discriminator"].strip("'"))
        kind = "missing" if kind == "union_tag_not_found" else kind
    elif kind == "missing" and location and isinstance(location[-1], int):
        location, kind = location[:-1], "too_few"
    problem = Problem(location, branches=branches, is_missing=kind == "missing")
    key = problem.key
    if kind == "extra_forbidden":
        return replace(problem, text=f"unknown setting {key!r}", known=complaint["input"])
    if kind in ("value_error", "assertion_error"):
        return replace(problem, text=f"{key} {facts['error']}".lstrip())
    if kind in _SENTENCES:
        return replace(problem, text=_SENTENCES[kind].format(key=key, **facts))
    said = complaint["msg"].removeprefix("Input should be ")
    return replace(problem, must_be=_WORDS.get(kind, "{said}").format(said=said, **facts))


def _without_branches(location: Sequence[Any], tree: Any) -> tuple[Location, int]:
    """The keys and positions of a complaint, and the number of other parts of its location."""
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
    return tuple(kept), len(location) - len(kept)
