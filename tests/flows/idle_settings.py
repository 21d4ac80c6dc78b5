"""Toggling the settings of a product beside several others, and comparing what a run makes.

A base is a settings file of one product. Every setting of the product takes other values beside it,
one at a time. A file so changed must either be refused, or measure, cost or release something else.
A setting without values to take fails the test, unless it is excused here with a reason.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest
import tomli_w
from pydantic import BaseModel
from spineflow.flows.order import called
from spineflow.tasks.products.product import Product
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import dump_settings

from tests.flows.in_process import judged_once

Tree = dict[str, Any]

Made = dict[str, str]
"""What a run makes: digests by name."""

ABSENT = object()
"""A toggle that takes a key away."""

EXCUSED = {
    "preset": "names a file of settings, whose keys are toggled themselves",
    "input.confidential": "decides what is shown of the input, not what is drawn",
    "privacy.dataset": "the name that the ledger adds up under",
    "privacy.ledger": "where that is written",
    "privacy.large_delta": "accepts what would be refused, of confidential input alone",
    "run.runner": "how a run is made, not what",
    "run.workers": "how a run is made, not what",
    "run.dask_address": "how a run is made, not what",
    "release.publish_to": "where a copy of the release goes",
}
"""Settings that change neither what is measured nor what is released, and why they are there."""


@dataclass(frozen=True)
class Search:
    """What is searched of a product.

    toggles : for each setting, by its dotted key, the values that it takes.
    made_of : yields what a run makes, name by name with a digest that changes no more; a run whose
        rest does not matter is left where it is.
    excused : settings without a toggle, and why.
    by_data : settings that may change nothing beside a base, because of the data or of what they
        state; in one base at least they change something.
    """

    product: Product
    toggles: Mapping[str, tuple[Any, ...]]
    made_of: Callable[[Path, ProductSettings], Iterator[tuple[str, str]]]
    excused: Mapping[str, str] = field(default_factory=dict)
    by_data: Mapping[str, str] = field(default_factory=dict)

    def changed(self, base: Tree) -> Iterator[tuple[str, Any, Tree]]:
        """Every toggle beside a base, with the settings that it makes.

        A default that a file says in so many words is no toggle, unless a preset says otherwise.
        """
        for key, values in self.toggles.items():
            for value in values:
                tree = deepcopy(base)
                put(tree, key, value)
                is_said = "preset" not in base and value == default_of(self.product.settings, key)
                if tree != base and not (is_said and get(base, key) is ABSENT):
                    yield key, value, tree

    def effect(
        self, tree: Tree, folder: Path, known: dict[str, Made], other: Made | None = None
    ) -> Made | None:
        """What a run of some settings makes; None if they are refused.

        A toggle beside one base is often another one beside a second: what is `known` of the same
        settings is not made again. Where `other` is given, no more is made than tells it apart.
        """
        file = folder / "settings.toml"
        file.write_text(tomli_w.dumps(tree))
        try:
            settings = self.product.load(file)
            said = dump_settings(settings)
            if said not in known:
                made: Made = {}
                for name, digest in self.made_of(folder, settings):
                    made[name] = digest
                    if other is not None and other.get(name) != digest:
                        return made
                known[said] = made
            return known[said]
        except InputRefused:
            return None


def get(tree: Tree, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part, ABSENT) if isinstance(tree, dict) else ABSENT
    return tree


def default_of(model: type[BaseModel], key: str) -> Any:
    """The default of a setting; `ABSENT` for one within a table by names."""
    *sections, last = key.split(".")
    for section in sections:
        found = model.model_fields.get(section)
        if found is None or not is_section(found.annotation):
            return ABSENT
        model = found.annotation
    return model.model_fields[last].get_default() if last in model.model_fields else ABSENT


def put(tree: Tree, key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    if value is ABSENT:
        tree.pop(last, None)
    else:
        tree[last] = value


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted keys of the settings of a model; tables by names of their own count as one."""
    for name, of in model.model_fields.items():
        inner = [kind for kind in (of.annotation, *get_args(of.annotation)) if is_section(kind)]
        if inner and is_section(of.annotation):
            yield from keys_of(inner[0], f"{prefix}{name}.")
        else:
            yield prefix + name


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def run_to_tables(
    product: Product,
) -> Callable[[Path, ProductSettings], Iterator[tuple[str, str]]]:
    """Run the steps up to the checks in this process, and digest what it costs, what was measured
    and what is to be released.
    """

    def made_of(folder: Path, settings: ProductSettings) -> Iterator[tuple[str, str]]:
        yield "costs", digest_of(product.costs(settings))
        number = sum(1 for path in folder.iterdir() if path.is_dir())
        run = RunDirectory(folder / f"run-{number}")
        run.root.mkdir()
        text = dump_settings(settings)
        start_run(run, product=product.name, settings_text=text, stamp=settings.stamp)
        steps = product.order(run, settings)
        told = set()
        for _ in called(run, takewhile(lambda wave: "checks" not in wave, steps)):
            for path in sorted(set((run.root / "measurements").rglob("*")) - told):
                told.add(path)
                yield from told_of(run, path)
        for path in sorted((run.root / "release-unchecked").rglob("*")):
            yield from told_of(run, path)

    return made_of


def told_of(run: RunDirectory, path: Path) -> Iterator[tuple[str, str]]:
    """The name and the digest of what is told of a run, if it is a file of it."""
    if path.is_file() and path.stem != "certificate":
        name = path.relative_to(run.root).as_posix()
        yield name, hashlib.sha256(path.read_bytes()).hexdigest()


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of the same values of all its arguments, called once for each.

    What it returns is shared, and so is not to be changed.
    """
    known: dict[bytes, Any] = {}

    def found(*arguments: Any, **named: Any) -> Any:
        key = hashlib.sha256(pickle.dumps((arguments, named))).digest()
        if key not in known:
            known[key] = function(*arguments, **named)
        return known[key]

    return found


def digest_of(found: Any) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()


def merged(*trees: Tree) -> Tree:
    result: Tree = {}
    for tree in trees:
        for section, table in tree.items():
            if isinstance(table, dict):
                result[section] = {**result.get(section, {}), **table}
            else:
                result[section] = table
    return result


def refuse_unconsidered(search: Search) -> None:
    """Fail for a setting that is neither toggled nor excused, and for one that there is not."""
    known = set(keys_of(search.product.settings))
    considered = {*search.toggles, *search.excused, *EXCUSED}
    assert not known - considered
    tables = {key.partition(".")[0] for key in known}
    assert not [key for key in considered - known if key.partition(".")[0] not in tables]


def refuse_idle(
    search: Search,
    bases: Mapping[str, Tree],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    never_effective: Collection[str] = (),
) -> None:
    """Fail for a toggle that does nothing beside a base and is not refused there, and for one that
    is refused everywhere.
    """
    # Hundreds of runs: the second opinion on the input, the disk, and what is recorded of files
    # lest they be damaged are tested elsewhere.
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("spineflow.flows.order.record_files", lambda _: None)
    with judged_once():
        found, effective = idle(search, bases, folder)
    assert not found, "\n".join(found)
    never = set(search.toggles) - effective - set(never_effective)
    assert not never, f"toggles that are refused everywhere: {never}"


def idle(search: Search, bases: Mapping[str, Tree], folder: Path) -> tuple[list[str], set[str]]:
    """Toggles that do nothing and are not refused, and the settings that did something.

    A setting does something where a run of it ends and differs. Once one has, a toggle of the same
    setting is run until it differs from the base, and to the end if it does not.
    """
    found, effective = [], set()
    known: dict[str, Made] = {}
    for name, base in bases.items():
        first = search.effect(base, folder, known)
        assert first is not None, f"the base {name!r} is refused"
        for key, value, tree in search.changed(base):
            effect = search.effect(tree, folder, known, first if key in effective else None)
            if effect not in (None, first):
                effective.add(key)
            if effect == first and key not in search.by_data:
                found.append(f"{name}: {key} = {value!r}")
    return found, effective
