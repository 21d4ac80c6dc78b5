"""Reading settings: from TOML, merged with a preset, validated once, frozen in the run directory.

Relative paths are taken from the folder of the settings file. Problems of settings become
sentences: the key, and its possible values.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import normalize

import tomli_w
from pydantic import BaseModel, ValidationError

from .directory import RELEASE_CHANGED, RunDirectory
from .errors import InputRefused
from .files import NOT_PRIVATE
from .names import did_you_mean, match_spelling, printable_name
from .settings import (
    RUNNER_KEYS,
    AnySection,
    ProductSettings,
    RunnerSettings,
    WrittenNumber,
    merged_tables,
    refuse_in,
    with_runner,
)
from .stores import is_url

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
    "string_type": "a text in quotes",
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


NO_FILE = "the form"
"""Name, in refusals, of settings that come from no file."""

Source = Mapping[str, Any] | str | Path
"""Settings: the tables of a settings file as nested mappings, or the path of one."""

TABLES = "the settings"
"""Name, in refusals, of settings given as tables."""

Settings = TypeVar("Settings", bound=ProductSettings)


def load_settings(
    model: type[Settings],
    source: str | Path | Mapping[str, Any] | None,
    *,
    presets: Path,
    overrides: Sequence[str] = (),
) -> Settings:
    """Read, merge and validate the settings of a run of the model's product.

    `source` is a settings file, or its contents as nested tables whose relative paths
    are taken from the working directory. `presets` is the folder of preset files; `overrides` are
    `section.key=value` strings whose value is TOML or else a bare string. Without a source the
    settings consist of the overrides, and their paths must be absolute. Raises InputRefused, naming
    the key and the remedy.
    """
    if source is None and not overrides:
        raise InputRefused("There are no settings: name a settings file, or fill in the form.")
    if isinstance(source, str | Path):
        # Names agree however their letters were composed.
        path = Path(source)
        merged = _parse_toml(normalize("NFC", _read(path)), path)
    else:
        path = Path(NO_FILE if source is None else TABLES)
        merged = _own_copy(source or {})
    for override in overrides:
        _apply_override(merged, override)

    def with_preset(of: type[ProductSettings], own: Mapping[str, Any]) -> Mapping[str, Any]:
        preset = own.get("preset")
        if preset is None:
            return own
        file = presets / f"{preset}.toml"
        known = sorted(entry.stem for entry in presets.glob("*.toml"))
        if not isinstance(preset, str) or not file.exists():
            raise InputRefused(
                f"{path.name}: unknown preset {preset!r}{did_you_mean(str(preset), known)}; "
                f"there are {', '.join(known)}."
            )
        return merged_tables(of.without_replaced(settings_tree(file), own), own)

    model = model.chosen_by(merged)
    merged = {name: own for name, own in merged.items() if name not in model.ASIDE}
    completed = model.completed(merged, path.resolve().parent)
    whole = model.expanded(completed, with_preset)
    settings = _validate_settings(model, whole, path)
    settings.refuse_ineffective(merged, refuse_in(path.name))
    return settings


def frozen_settings(model: type[Settings], path: Path) -> Settings:
    """Settings that a run has frozen in its directory: merged already, paths absolute.

    Every step reads them, and they are validated once.
    """
    return _frozen(model, _read(path), path)


def settings_of_finished(
    model: type[Settings], run: RunDirectory, where: str, file: str = ""
) -> Settings:
    """The settings of the finished run that another run's setting `where` names.

    Raises InputRefused if the folder is no run, or a run of another product, if its release, or the
    required `file` of it, does not exist yet, and if its settings have been edited.
    """
    if not run.manifest.exists():
        raise InputRefused(
            f"{where}: {run.root} is no directory of a run; name a finished run of {model.PRODUCT}."
        )
    product = run.read_manifest()["product"]
    if product != model.PRODUCT:
        raise InputRefused(f"{where} is a run of {product}; name one of {model.PRODUCT}.")
    if not (run.release / file).exists():
        raise InputRefused(
            f"{where}: the run {run.root.name} has no release yet; finish it with 'spineflow "
            "resume'."
        )
    run.refuse_edited_settings()
    return settings_of_run(model, run)


@lru_cache(maxsize=32)
def _frozen(model: type[Settings], text: str, path: Path) -> Settings:
    tree = _parse_toml(text, path)
    return _validate_settings(model.chosen_by(tree), tree, path)


def settings_of_run(model: type[Settings], run: RunDirectory) -> Settings:
    """The frozen settings of a run, with the present [release]."""
    return with_release_of(run, frozen_settings(model, run.settings))


def with_release_of(run: RunDirectory, settings: Settings) -> Settings:
    """The settings of a run with [release] as the run has it now, if it has begun."""
    changed = run.read_manifest().get(RELEASE_CHANGED) if run.manifest.exists() else None
    if changed is None:
        return settings
    release = type(settings.release).model_validate(changed)
    return settings.model_copy(update={"release": release})


def with_resume_overrides(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The settings of a run with overrides of the keys that a resumed run may change: its runner
    and its release. Relative paths are taken from the working directory.

    Raises InputRefused for any other key: the rest decides what is drawn, and was charged.
    """
    tree: dict[str, Any] = {}
    may_change = (*RUNNER_KEYS, *settings.release_keys)
    for override in overrides:
        key = override.partition("=")[0].strip()
        if "=" in override and key not in may_change:
            raise InputRefused(
                f"--set {override}: a run that has begun keeps its settings; only "
                f"{', '.join(may_change)} may change."
            )
        _apply_override(tree, override)
    if "run" in tree:
        own = {name: getattr(settings.run, name) for name in RunnerSettings.model_fields}
        settings = with_runner(settings, _overridden(RunnerSettings, "run", own | tree["run"]))
    if "release" in tree:
        given = settings.release.model_dump() | tree["release"]
        release = _overridden(type(settings.release), "release", given).with_absolute_paths(
            lambda path: path if is_url(path) else str(Path(path).resolve())
        )
        settings = settings.model_copy(update={"release": release})
        settings.refuse_unfit_addresses(refuse_in("--set"))
    return settings


def _overridden(model: type[AnySection], name: str, given: Mapping[str, Any]) -> AnySection:
    """A section with overrides; raises InputRefused for wrong ones."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InputRefused(f"--set {name}.{sentences(model, error, given)}.") from None


def dump_settings(settings: ProductSettings) -> str:
    """TOML of the merged settings, which `frozen_settings` reads back to an equal object."""
    text = tomli_w.dumps(settings.model_dump(mode="json", by_alias=True, exclude_none=True))
    return text if settings.is_private else f"# {NOT_PRIVATE}\n{text}"


def _own_copy(value: Any) -> Any:
    """Tables that may be changed, or a value in them, with paths as texts."""
    if isinstance(value, Mapping):
        return {normalize("NFC", key): _own_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_own_copy(item) for item in value]
    if isinstance(value, str | Path):
        return normalize("NFC", str(value))
    return value


def settings_tree(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises InputRefused for one that cannot be read."""
    return _parse_toml(_read(path), path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputRefused(f"{path}: no such settings file; check the path.") from None
    except IsADirectoryError:
        raise InputRefused(f"{path} is a folder; name the settings file in it.") from None
    except UnicodeDecodeError:
        raise InputRefused(f"{path.name} is not UTF-8 text; save it as UTF-8.") from None


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputRefused(f"{path.name} is not valid TOML: {error}.") from None
    except RecursionError:
        raise InputRefused(
            f"{path.name} has lists or tables too deep within each other; no setting needs that."
        ) from None


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = normalize("NFC", override).partition("=")
    if not equals or not key.strip():
        raise InputRefused(f"--set {override}: write it as section.key=value.")
    try:
        value = tomllib.loads(f"value = {text}", parse_float=WrittenNumber)["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except RecursionError:
        raise InputRefused(f"--set {key.strip()}: the value nests too deep.") from None
    *sections, last = _parts_of(key)
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise InputRefused(f"--set {override}: {section} is not a section.")
    tree[match_spelling(last, tree)] = value


def _parts_of(key: str) -> list[str]:
    """The keys of a dotted key, of which those with points and other marks may be quoted.

    >>> _parts_of('budget.people.queries.other."sex * age"')
    ['budget', 'people', 'queries', 'other', 'sex * age']
    """
    found = re.findall(r"""\s*(?:"([^"]*)"|'([^']*)'|([^.]*?))\s*(?:\.|$)""", key.strip())
    return ["".join(parts) for parts in found[: key.count(".") + 1] if any(parts)] or [key.strip()]


def _validate_settings(model: type[Settings], tree: Mapping[str, Any], path: Path) -> Settings:
    try:
        settings = model.model_validate(tree)
    except ValidationError as error:
        raise InputRefused(f"{path.name}: {sentences(model, error, tree)}.") from None

    def absolute(name: str) -> str:
        if path.name == NO_FILE and not is_url(name) and not Path(name).is_absolute():
            raise InputRefused(
                f"{NO_FILE}: {name} is no full path; write paths as the worker sees them."
            )
        if is_url(name):
            return name
        given = path.parent / name
        if not os.path.lexists(given) and os.path.lexists(path.parent / normalize("NFD", name)):
            # Settings are read in form C; files keep the letters that their system composed.
            given = path.parent / normalize("NFD", name)
        # These ignore places that may not be entered; reading the file reports the fault.
        exists = os.path.exists(given)
        if os.path.islink(given) and not exists:
            raise InputRefused(
                f"{path.name}: {name} is a link to {os.readlink(given)}, which does not exist; "
                "mend the link, or name another file."
            )
        if exists and not os.path.isfile(given) and not os.path.isdir(given):
            raise InputRefused(
                f"{path.name}: {name} is a pipe, a socket or a device; copy its output into a "
                "file, and name that."
            )
        return str(given.resolve())

    settings = settings.with_absolute_paths(absolute)
    refuse = refuse_in(path.name)
    settings.refuse_unfit_addresses(refuse)
    settings.refuse_invalid(refuse)
    return settings
