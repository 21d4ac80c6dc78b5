"""Names that become paths follow one pattern, wherever they are given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from spineflow.flows.form import form_of
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.names import below, is_file_name
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.paths import (
    combined_file,
    constraints_file,
    demanded_file,
    solves_file,
    spine_folder,
)
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import Shard, read_shards, write_shards

REPOSITORY = Path(__file__).resolve().parents[3]
PRESETS = REPOSITORY / "flows" / "settings"

_SPEC = importlib.util.spec_from_file_location("towns", REPOSITORY / "tests/library/towns.py")
towns = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(towns)

BAD = (
    "",
    ".",
    "..",
    "../../x",
    "/tmp/x",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "a\x1bb",
    "a\u202eb",
    "a\u2028b",
    " a",
    "a ",
    "a  b",
    ".a",
    "-a",
    "a..b",
    "a.",
    "a*b",
    "~",
    "ü" * 61,
)
GOOD = (
    "residents",
    "old_age-2",
    "group quarters",
    "v1.2",
    "Wohnbevölkerung",
    "住戸",
    "население",
    "أشخاص",
    "जनसंख्या",
    "1",
    "_own",
    "a" * 120,
)


def tree() -> dict[str, Any]:
    own = towns.settings(
        input={"residents": "residents.csv", "areas": "areas.csv"}, privacy={"dataset": "town"}
    )
    universe = own["census"]["universes"]["residents"]
    universe["structural_zeros"] = [{"where": {"age": ["old"], "sex": ["male"]}}]
    universe["invariants"] = [{"geolevel": "country"}]
    universe["bounds"] = [{"per": "residents", "at_least": 0}]
    universe["relations"] = [{"name": "r", "left": [{}], "sign": ">="}]
    universe["held_to"] = [{"release": "earlier"}]
    universe["occupants"] = {"guests": {"table": "guests", "column": "a", "key": "b"}}
    universe["through"] = {"column": "a", "table": "homes", "key": "b"}
    own["census"]["geography"]["categories"] = {"place": {"column": "place"}}
    own["census"]["geography"]["entities"] = {"region": {"name": "name"}}
    own["census"]["quantities"] = [{"name": "all", "universe": "residents"}]
    own["census"]["summary_levels"] = [{"code": "1", "name": "region", "parts": ["r"]}]
    return own


def renamed(*path: str | int) -> Callable[[str], dict[str, Any]]:
    """The settings with the key at a path, or the value where the path ends with "=", renamed."""

    def change(name: str) -> dict[str, Any]:
        own = deepcopy(tree())
        node: Any = own
        *above, last = path if path[-1] != "=" else path[:-1]
        for part in above:
            node = node[part]
        if path[-1] == "=":
            node[last] = name
        else:
            node[name] = node.pop(last)
        return own

    return change


UNIVERSE = ("census", "universes", "residents")
FILES = {
    "universe": renamed(*UNIVERSE),
    "universe that is run": renamed("run", "universes", 0, "="),
    "universe of a budget": renamed("budget", "residents"),
    "geolevel": renamed("census", "geography", "geolevels", 1, "="),
    "attribute": renamed("census", "attributes", "sex"),
    "coarsening": renamed("census", "coarsenings", "minor"),
    "table of a universe": renamed(*UNIVERSE, "table", "="),
    "table of areas": renamed("census", "geography", "table", "="),
    "table on the way": renamed(*UNIVERSE, "through", "table", "="),
    "table of occupants": renamed(*UNIVERSE, "occupants", "guests", "table", "="),
    "occupants": renamed(*UNIVERSE, "occupants", "guests"),
    "earlier release": renamed(*UNIVERSE, "held_to", 0, "release", "="),
    "earlier universe": renamed(*UNIVERSE, "held_to", 0, "universe", "="),
    "released table": renamed("census", "tables", 0, "name", "="),
    "entities": renamed("census", "geography", "categories", "place"),
    "summary level": renamed("census", "summary_levels", 0, "name", "="),
    "input table": renamed("input", "residents"),
}
SHOWN = {
    "structural zero": renamed(*UNIVERSE, "structural_zeros", 0, "name", "="),
    "invariant": renamed(*UNIVERSE, "invariants", 0, "name", "="),
    "bound": renamed(*UNIVERSE, "bounds", 0, "name", "="),
    "relation": renamed(*UNIVERSE, "relations", 0, "name", "="),
    "held": renamed(*UNIVERSE, "held_to", 0, "name", "="),
    "quantity": renamed("census", "quantities", 0, "name", "="),
    "entities with names": renamed("census", "geography", "entities", "region"),
}


def refusal(model: type[ProductSettings], given: dict[str, Any]) -> str:
    with pytest.raises(InputRefused) as refused:
        load_settings(model, given, presets=PRESETS)
    return str(refused.value)


@pytest.mark.parametrize("kind", FILES)
def test_names_of_files_are_refused_wherever_they_stand(kind: str) -> None:
    """Threat model: names that lead out of the run directory."""
    for name in BAD:
        told = refusal(TopdownSettings, FILES[kind](name))
        assert "is no name that files can have" in told, name
        assert "function-" not in told and "\0" not in told and "\x1b" not in told


@pytest.mark.parametrize("kind", SHOWN)
def test_names_that_are_shown_are_printable(kind: str) -> None:
    for name in ("", " a", "a\nb", "a\0b", "a\x1bb", "a\u202eb", "x" * 301):
        assert "is no name that pages can show" in refusal(TopdownSettings, SHOWN[kind](name)), name


def test_names_of_any_script_are_names_of_files(tmp_path: Path) -> None:
    for name in GOOD:
        assert is_file_name(name), name
        (tmp_path / f"{name}.parquet").touch()
    assert not any(is_file_name(name) for name in BAD)


def test_forms_give_no_other_names() -> None:
    """Threat model: names that lead out of the run directory."""
    with pytest.raises(ValidationError, match=r"is no name that files can have"):
        form_of(TopdownSettings)(universes=["../../x"])


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "", "a\0b"])
def test_paths_of_a_run_do_not_leave_it(tmp_path: Path, name: str) -> None:
    """Threat model: names that lead out of the run directory."""
    run = RunDirectory(tmp_path)
    for path in (
        lambda: run.measurements(name, "root"),
        lambda: run.measurements("u", name),
        lambda: run.estimates(name, "root", "00000"),
        lambda: run.estimates("u", "root", f"../{name}"),
        lambda: run.dpqueries("u", "root", f"../{name}"),
        lambda: run.histogram(f"../{name}"),
        lambda: below(tmp_path, "a", name),
    ):
        with pytest.raises(ValueError, match="would lead out of"):
            path()
    assert run.measurements("u", "root") == tmp_path / "measurements" / "u" / "root"


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a\0b"])
def test_shards_of_a_folder_from_elsewhere_do_not_leave_it(tmp_path: Path, name: str) -> None:
    """Threat model: names that lead out of the run directory."""
    run = RunDirectory(tmp_path)
    spine_folder(run, "u").mkdir(parents=True)
    write_shards([Shard("root", name, 0, 0, 0, 1)], spine_folder(run, "u"))
    (shard,) = read_shards(spine_folder(run, "u"))
    places = (constraints_file, demanded_file, combined_file, solves_file)
    for path in (
        *(lambda place=place: place(run, "u", shard.geolevel, shard.name) for place in places),
        lambda: run.dpqueries("u", shard.geolevel, shard.name),
    ):
        with pytest.raises(ValueError, match="would lead out of"):
            path()
