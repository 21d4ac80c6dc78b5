"""The demonstrations: for every product generated input, and settings that are ready to run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import tomli_w

from ..tasks.detailed_groups.ingest.generate import (
    generate_persons,
    generate_specification,
    give_detailed_codes,
)
from ..tasks.detailed_groups.workload.parameters import read_specification
from ..tasks.group_sizes.ingest.generate import census_like, write_dataset
from ..tasks.products.product import product
from ..tasks.runs.files import read_declared
from ..tasks.topdown.ingest.generate import generate_country, generate_county, generate_grid
from ..tasks.topdown.ingest.generate_households import synthesize_households
from ..tasks.topdown.product import TOPDOWN
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.trips.ingest.generate import CountrySize
from ..tasks.trips.ingest.generate import generate_country as generate_commuters
from .ledger import WrittenCaps, init_ledger

DEMOS = Path(__file__).parent / "demos"
"""Settings of the demonstrations, except generated ones."""

FEW = 3_000
"""Persons of a small county, which a search measures and estimates again and again."""

DEMO_CAP = "30"
"""Cap of rho on spending from generated input: at least one run of a demonstration."""

STATES = ("44", "09")
"""States of the generated persons of detailed groups."""
COMMUTERS = CountrySize(
    regions=5, provinces=20, municipalities=400, pairs=10_000, commuters=500_000
)


@dataclass(frozen=True)
class Demo:
    """A demonstration.

    name : of its settings in `DEMOS`, unless these are written with the input.
    flow : the flow that it runs.
    write : writes the input into a folder, from a seed.
    spends : whether a run is charged to a ledger.
    """

    name: str
    flow: str
    write: Callable[[Path, int], None]
    spends: bool = True

    @property
    def folder(self) -> str:
        """The default folder."""
        return f"spineflow-{'demo' if self.name == 'topdown' else self.name}"


def _generate(generate: Callable[..., object], folder: Path, seed: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    generate(folder / "input", seed=seed)


def _generate_households(generate: Callable[..., object], folder: Path, seed: int) -> None:
    with TemporaryDirectory(dir=folder) as raw:
        generate(raw, seed=seed)
        synthesize_households(raw, folder / "input", seed=seed)


_generate_few = partial(generate_county, persons=FEW)


def _estimate(folder: Path, seed: int) -> None:
    """Measure the county under a ledger in its folder, and export the measurements."""
    from ..tasks.topdown.published.export import export_measurements
    from .running import call_stages, prepare

    with TemporaryDirectory(dir=folder) as own:
        office = Path(own)
        _generate(_generate_few, office, seed)
        shutil.copyfile(DEMOS / "topdown.toml", office / "settings.toml")
        init_ledger(office / "ledger.db", WrittenCaps(cap=[DEMO_CAP]), is_listed=False)
        settings = cast(TopdownSettings, TOPDOWN.load(office / "settings.toml"))
        run = prepare(settings, office / "run")
        call_stages(run, settings, before=" estimate ")
        export_measurements(run, settings, folder / "measurements")
        shutil.copyfile(office / "input" / "grfc.txt", folder / "grfc.txt")


def _detailed_groups(folder: Path, seed: int) -> None:
    generate_specification(folder / "params", states=STATES)
    codes = tuple(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=60_000, tracts=60, states=STATES, seed=seed)


def _detailed_households(folder: Path, seed: int) -> None:
    """The groups of the county's persons are released first, under the same ledger."""
    from .running import call_stages, prepare

    state = STATES[0]
    _generate_households(partial(generate_county, state=state), folder, seed)
    generate_specification(folder / "params", states=(state,), households=True)
    codes = tuple(read_specification(str(folder / "params")).names)
    give_detailed_codes(folder / "input" / "persons.parquet", codes, seed=seed)
    init_ledger(folder / "ledger.db", WrittenCaps(cap=[DEMO_CAP]), is_listed=False)
    tables = read_declared(DEMOS / "detailed_households.toml")
    del tables["input"]["groups"]
    file = folder / "groups.toml"
    file.write_text(tomli_w.dumps(tables), encoding="utf-8")
    groups = product("detailed-groups")
    settings = groups.load(file)
    run = prepare(settings, folder / "groups")
    call_stages(run, settings)


def _group_sizes(folder: Path, seed: int) -> None:
    write_dataset(folder, census_like(groups=2_000_000, counties=60, states=6, seed=seed))


def _trips(folder: Path, seed: int) -> None:
    generate_commuters(folder, COMMUTERS, seed=seed)


_county = partial(_generate, generate_county)
_few = partial(_generate, _generate_few)
_country = partial(_generate, generate_country)
_grid = partial(_generate, generate_grid)
_housed = partial(_generate_households, generate_county)
_few_housed = partial(_generate_households, _generate_few)

GENERATED = {
    demo.name: demo
    for demo in (
        Demo("topdown", "topdown", _county),
        Demo("country", "topdown", _country),
        Demo("grid", "topdown", _grid),
        Demo("households", "products", _housed),
        Demo("detailed-groups", "detailed-groups", _detailed_groups),
        Demo("detailed-households", "detailed-households", _detailed_households),
        Demo("group-sizes", "group-sizes", _group_sizes),
        Demo("products", "products", _county),
        Demo("tune", "tune", _few, spends=False),
        Demo("evidence", "evidence", _few_housed, spends=False),
        Demo("estimate", "estimate", _estimate, spends=False),
        Demo("supplemental-dhc", "supplemental-dhc", _housed),
        Demo("trips", "trips", _trips),
    )
}
"""The demonstrations by name: of every product, a country abroad whose census its settings declare,
a European census on a grid that its municipalities do not keep to, and redistricting, housing units
and persons of one county."""


def write_demo(demo: Demo, folder: Path, *, seed: int = 2020) -> Path:
    """Write a demonstration's input and settings into `folder`, and return the settings file.

    Existing files are kept, so that a second demonstration continues the first.
    """
    settings = folder / "settings.toml"
    if not settings.exists():
        if not folder.exists():
            folder.mkdir(parents=True)
            # No ledger is kept where others can write.
            folder.chmod(folder.stat().st_mode & ~0o022)
        demo.write(folder, seed)
        if not settings.exists():
            shutil.copyfile(DEMOS / f"{demo.name.replace('-', '_')}.toml", settings)
    return settings
