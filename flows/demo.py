"""The demonstrations: for every product generated input, and settings that are ready to run."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
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
from ..tasks.products.registry import product
from ..tasks.topdown.ingest.generate import generate_county
from ..tasks.topdown.ingest.generate_country import generate_country
from ..tasks.topdown.ingest.generate_households import rehouse
from ..tasks.trips.ingest.generate import CountrySize
from ..tasks.trips.ingest.generate import generate_country as generate_commuters

COUNTRY = Path(__file__).parent / "demos" / "country.toml"
"""Settings of the generated country, whose census they declare."""

DETAILED_GROUPS = Path(__file__).parent / "demos" / "detailed_groups.toml"
"""Settings of the generated persons in the production layout of detailed groups."""

DETAILED_HOUSEHOLDS = Path(__file__).parent / "demos" / "detailed_households.toml"
"""Settings of the households of a generated county, beside the finished run of its groups."""

PRODUCTS = Path(__file__).parent / "demos" / "products.toml"
"""Settings of several products of the generated county."""

HOUSEHOLDS = Path(__file__).parent / "demos" / "households.toml"
"""Settings of the products that count persons and households of a generated county."""

SUPPLEMENTAL_DHC = Path(__file__).parent / "demos" / "supplemental_dhc.toml"
"""Settings of the tables of people in households of a generated county."""

SEARCH = Path(__file__).parent / "demos" / "tune.toml"
"""Settings of a search on a small generated county."""

EVIDENCE = Path(__file__).parent / "demos" / "evidence.toml"
"""Settings of a comparison of protection methods on a small generated county."""

PUBLISHED = Path(__file__).parent / "demos" / "estimate.toml"
"""Settings of estimates from what is published of a small generated county."""

FEW = 3_000
"""Persons of a small county, which a search measures and estimates again and again."""

SETTINGS = """\
# A generated county; nobody lives there, so counts may be shown.
preset = "pl94_2020_us"

[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false

[privacy]
dataset = "demo-county"
ledger = "ledger.db"

[geography]
spine = "optimized"

[run]
universes = ["persons", "units"]
workers = 2
"""

DEMO_CAP = "10"
"""Cap of what may be spent on what was generated: one run of a demonstration at least."""

HOUSEHOLDS_CAP = "30"
"""The same where the groups of persons are released first, and then those of households."""

STATES = ("44", "09")
"""States of the generated persons of detailed groups."""
COMMUTERS = CountrySize(
    regions=5, provinces=20, municipalities=400, pairs=10_000, commuters=500_000
)


@dataclass(frozen=True)
class Demo:
    """A demonstration.

    flow : the flow that it runs.
    what : what is generated, in words.
    folder : where it goes unless another is named.
    write : writes the input and then the settings into a folder, from a seed.
    spends : whether a run is charged to a ledger.
    cap : rho that may be spent on what was generated.
    """

    flow: str
    what: str
    folder: str
    write: Callable[[Path, int], None]
    spends: bool = True
    cap: str = DEMO_CAP


def _county(folder: Path, seed: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    generate_county(folder / "input", seed=seed)
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")


def _products(folder: Path, seed: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    generate_county(folder / "input", seed=seed)
    shutil.copyfile(PRODUCTS, folder / "settings.toml")


def _households(folder: Path, seed: int) -> None:
    _generate_households(folder, seed, generate_county)
    shutil.copyfile(HOUSEHOLDS, folder / "settings.toml")


def _evidence(folder: Path, seed: int) -> None:
    _generate_households(folder, seed, partial(generate_county, persons=FEW))
    shutil.copyfile(EVIDENCE, folder / "settings.toml")


def _generate_households(folder: Path, seed: int, generate: Callable[..., object]) -> None:
    with TemporaryDirectory(dir=folder) as raw:
        generate(raw, seed=seed)
        rehouse(raw, folder / "input", seed=seed)


def _supplemental_dhc(folder: Path, seed: int) -> None:
    _generate_households(folder, seed, generate_county)
    shutil.copyfile(SUPPLEMENTAL_DHC, folder / "settings.toml")


def _tune(folder: Path, seed: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    generate_county(folder / "input", persons=FEW, seed=seed)
    shutil.copyfile(SEARCH, folder / "settings.toml")


def _estimate(folder: Path, seed: int) -> None:
    """The county is measured under a ledger that goes with it: published is what is exported."""
    from ..tasks.products.order import Aside
    from ..tasks.topdown.order import order
    from ..tasks.topdown.product import TOPDOWN
    from ..tasks.topdown.published.export import export_measurements
    from ..tasks.topdown.settings import TopdownSettings
    from .ledger import WrittenCaps, init_ledger
    from .order import run_in_process
    from .running import prepare

    with TemporaryDirectory(dir=folder) as own:
        office = Path(own)
        (office / "input").mkdir()
        generate_county(office / "input", persons=FEW, seed=seed)
        (office / "settings.toml").write_text(SETTINGS, encoding="utf-8")
        init_ledger(office / "ledger.db", WrittenCaps(rho=[DEMO_CAP]), is_listed=False)
        settings = cast(TopdownSettings, TOPDOWN.load(office / "settings.toml"))
        run = prepare(settings, office / "run")
        # All that is published is there when something begins to go beside the estimates.
        waves = takewhile(lambda wave: not isinstance(wave, Aside), order(run, settings))
        run_in_process(run, waves)
        export_measurements(run, settings, folder / "measurements")
        shutil.copyfile(office / "input" / "grfc.txt", folder / "grfc.txt")
    shutil.copyfile(PUBLISHED, folder / "settings.toml")


def _country(folder: Path, seed: int) -> None:
    (folder / "input").mkdir(exist_ok=True)
    generate_country(folder / "input", seed=seed)
    shutil.copyfile(COUNTRY, folder / "settings.toml")


def _detailed_groups(folder: Path, seed: int) -> None:
    generate_specification(folder / "params", states=STATES)
    codes = tuple(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=60_000, tracts=60, states=STATES, seed=seed)
    shutil.copyfile(DETAILED_GROUPS, folder / "settings.toml")


def _detailed_households(folder: Path, seed: int) -> None:
    """The groups of the county's persons are released first, under the same ledger."""
    from .ledger import WrittenCaps, init_ledger
    from .order import run_in_process
    from .running import prepare

    state = STATES[0]
    _generate_households(folder, seed, partial(generate_county, state=state))
    generate_specification(folder / "params", states=(state,), households=True)
    codes = tuple(read_specification(str(folder / "params")).names)
    give_detailed_codes(folder / "input" / "persons.parquet", codes, seed=seed)
    shutil.copyfile(DETAILED_HOUSEHOLDS, folder / "settings.toml")
    init_ledger(folder / "ledger.db", WrittenCaps(rho=[HOUSEHOLDS_CAP]), is_listed=False)
    tables = tomllib.loads(DETAILED_HOUSEHOLDS.read_text(encoding="utf-8"))
    del tables["input"]["groups"]
    file = folder / "groups.toml"
    file.write_text(tomli_w.dumps(tables), encoding="utf-8")
    groups = product("detailed-groups")
    settings = groups.load(file)
    run = prepare(settings, folder / "groups")
    assert groups.order is not None
    run_in_process(run, groups.order(run, settings))


def _group_sizes(folder: Path, seed: int) -> None:
    write_dataset(folder, census_like(groups=2_000_000, counties=60, states=6, seed=seed))


def _trips(folder: Path, seed: int) -> None:
    generate_commuters(folder, COMMUTERS, seed=seed)


DEMO_COUNTRY = Demo("topdown", "country abroad", "spineflow-country", _country)
"""The country abroad, whose census its settings declare."""

DEMO_HOUSEHOLDS = Demo(
    "products",
    "county of 30,000 persons in households that fit together",
    "spineflow-households",
    _households,
    cap="20",
)
"""Redistricting, housing units and persons of one county."""

GENERATED = {
    demo.flow: demo
    for demo in (
        Demo("topdown", "county of 30,000 persons", "spineflow-demo", _county),
        Demo(
            "detailed-groups",
            "population of 60,000 persons in two states",
            "spineflow-detailed-groups",
            _detailed_groups,
        ),
        Demo(
            "detailed-households",
            "county of 30,000 persons in households that fit together",
            "spineflow-detailed-households",
            _detailed_households,
            cap=HOUSEHOLDS_CAP,
        ),
        Demo(
            "group-sizes",
            "nation of two million households in 60 counties",
            "spineflow-group-sizes",
            _group_sizes,
        ),
        Demo("products", "county of 30,000 persons", "spineflow-products", _products),
        Demo("tune", f"county of {FEW:,} persons", "spineflow-tune", _tune, spends=False),
        Demo(
            "evidence",
            f"county of {FEW:,} persons in households that fit together",
            "spineflow-evidence",
            _evidence,
            spends=False,
        ),
        Demo(
            "estimate",
            f"folder of noisy measurements of a county of {FEW:,} persons",
            "spineflow-estimate",
            _estimate,
            spends=False,
        ),
        Demo(
            "supplemental-dhc",
            "county of 30,000 persons in households that fit together",
            "spineflow-supplemental-dhc",
            _supplemental_dhc,
        ),
        Demo("trips", "country of 500,000 commuters in 400 towns", "spineflow-trips", _trips),
    )
}
"""The demonstration of every product, by the name of its flow."""


def write_demo(demo: Demo, folder: Path, *, seed: int = 2020) -> Path:
    """Write a demonstration's input and settings into `folder`, and return the settings file.

    What is there already is kept, so that a second demonstration continues the first.
    """
    settings = folder / "settings.toml"
    if not settings.exists():
        if not folder.exists():
            folder.mkdir(parents=True)
            # No ledger is kept where others can write.
            folder.chmod(folder.stat().st_mode & ~0o022)
        demo.write(folder, seed)
    return settings
