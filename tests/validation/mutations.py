"""Every field of a plan and every file of a run, corrupted in turn."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.ledger.charging import refuse_unlike_ledger
from spineflow.tasks.products.plan import write_plan
from spineflow.tasks.products.product import Product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.validation.outcome import Failures, Outcome
from spineflow.validation.run_files import unusable_files_fail
from spineflow.validation.topdown.run_checks import CheckedRun

from tests.flows.in_process import judged_once, stop_after

SCHEMA = Path(__file__).parents[2] / "docs" / "plan.schema.json"
PRIVACY, LEDGER = "privacy_accounting", "digests of the ledger"
Place = tuple[str, ...]

SENTENCES: set[Place] = {
    ("guarantees", "*", "protected", "*"),
    ("statement", "protected", "*"),
    ("statement", "change", "*"),
    ("statement", "losses", "*", "protected", "*"),
    ("statement", "together"),
    ("statement", "unprotected", "*"),
    ("exact", "*", "fact"),
}
"""Words of a plan: that nobody changed them is known by what the ledger was charged with."""


def fields_of_plan() -> list[Place]:
    """The places of all fields of `plan.json` by its schema, `*` for each of several."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return [*_places(schema, schema["$defs"])]


def _places(node: Mapping[str, Any], named: Mapping[str, Any], at: Place = ()) -> Iterator[Place]:
    node = named[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    if "items" in node:
        yield from _places(node["items"], named, (*at, "*"))
    elif "properties" in node:
        for key, below in node["properties"].items():
            yield from _places(below, named, (*at, key))
    elif isinstance(node.get("additionalProperties"), dict):
        yield (*at, "*")
    else:
        yield at


def corrupted(content: Any, place: Place) -> Iterator[Any]:
    """Copies of a plan in which a field has another value: in the first and the last that have it,
    and one from which the last is taken, and one that has it twice.
    """
    if not place:
        yield _other(content)
        return
    key, *below = place
    keys: list[Any] = [key]
    if key == "*":
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    for own in dict.fromkeys([*keys[:1], *keys[-1:]]):
        for changed in corrupted(content[own], tuple(below)):
            whole = copy.copy(content)
            whole[own] = changed
            yield whole
    if key == "*" and isinstance(content, list):
        yield content[:-1] if content else ["more"]
        if content:
            yield [*content, content[-1]]


def _other(value: Any) -> Any:
    """A value of the same kind that is another."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return "1"
    if isinstance(value, str):
        return f"{value}1"
    return value * 1.001 if isinstance(value, float) else value + 1


def corrupt_plan(root: Path, place: Place) -> Iterator[None]:
    """Write each corrupted plan in turn; the plan as it was stands again after the last."""
    file = root / "plan" / "plan.json"
    before = file.read_bytes()
    for changed in corrupted(json.loads(before), place):
        file.write_text(json.dumps(changed), encoding="utf-8")
        yield
    file.write_bytes(before)


def checked(
    root: Path, release: Path, subject: str | None = None, size: int = 1 << 16, n: int = 1
) -> list[Outcome]:
    """Outcomes of the checks of a topdown run, or of a universe or the tables of one, in n pieces
    of each kind and parts of so many blocks."""
    run = CheckedRun(root, release, size)
    pieces = [piece for piece in run.pieces(lambda _: n) if subject in (None, piece.subject)]
    return run.outcomes([(piece, run.check(piece)) for piece in pieces])


def finished(own: Product, folder: Path, settings: str, until: str) -> RunDirectory:
    """A run of a settings file's text, up to the step that is named."""
    (folder / "settings.toml").write_text(settings, encoding="utf-8")
    loaded = own.load(folder / "settings.toml")
    run = prepare(loaded, folder / "run")
    with judged_once():
        call_stages(run, loaded, ended=stop_after(until))
    return run


def noticed(own: Product, run: RunDirectory, settings: ProductSettings) -> set[str]:
    """Names of all that notice a corruption of a finished run."""
    assert own.checks is not None
    found = {outcome.name for outcome in own.checks.release(run, settings) if not outcome.passed}
    return found | _noticed_by_ledger(run, settings)


def noticed_in_plan(own: Product, run: RunDirectory, settings: ProductSettings) -> set[str]:
    """As `noticed`, of a corruption of the plan, by the check that precedes the charge."""
    assert own.checks is not None and own.checks.plan is not None
    failures = Failures()
    with unusable_files_fail(failures):
        own.checks.plan(run.root, failures)
    return ({PRIVACY} if failures.count else set()) | _noticed_by_ledger(run, settings)


def _noticed_by_ledger(run: RunDirectory, settings: ProductSettings) -> set[str]:
    try:
        refuse_unlike_ledger(run, settings)
    except InputRefused:
        return {LEDGER}
    return set()


def wanted_by(place: Place) -> str:
    """The check that must notice another value in a place of the plan."""
    return LEDGER if place in SENTENCES else PRIVACY


def write_unlike(own: Product, run: RunDirectory, other: ProductSettings) -> None:
    """Write a plan that agrees with itself and with the files, but is of other settings."""
    assert own.plan is not None
    write_plan(run, own.plan(other, run))


def assert_field_is_checked(
    own: Product, run: RunDirectory, settings: ProductSettings, place: Place
) -> None:
    """Every other value in a place of the plan of a finished run is noticed."""
    assert noticed_in_plan(own, run, settings) == set()
    n = 0
    for _ in corrupt_plan(run.root, place):
        n += 1
        assert wanted_by(place) in noticed_in_plan(own, run, settings), n
    assert n > 0


def assert_file_is_checked(
    own: Product, run: RunDirectory, settings: ProductSettings, name: str, check: str
) -> None:
    """A check notices that a file of a finished run is empty, cut, longer or missing."""
    file = run.root / name
    before = file.read_bytes()
    for other in (b"", before[:-9], before + b"1\n", None):
        file.unlink() if other is None else file.write_bytes(other)
        assert check in noticed(own, run, settings), other
    file.write_bytes(before)
    assert noticed(own, run, settings) == set()
