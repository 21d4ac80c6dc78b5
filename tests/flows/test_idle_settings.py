"""No setting does nothing: each is toggled beside several others, and what a run makes is compared.

A base is a settings file of one product. Every setting of the product takes other values beside it,
one at a time. A file so changed must either be refused, or measure, cost or release something else.
A setting without values to take fails the test, unless it is excused here with a reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import tomli_w
from pydantic import BaseModel
from spineflow.flows.detailed_groups import PRODUCT as DETAILED_GROUPS
from spineflow.flows.group_sizes import PRODUCT as GROUP_SIZES
from spineflow.flows.order import run_in_process
from spineflow.flows.products import PRODUCT as PRODUCTS
from spineflow.flows.running import Product
from spineflow.flows.topdown import PRODUCT as TOPDOWN
from spineflow.flows.trips import PRODUCT as TRIPS
from spineflow.flows.tune import PRODUCT as TUNE
from spineflow.tasks.census.invariants import read_geography, read_invariants
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_persons,
    generate_specification,
)
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.ingest.parameters import read_specification
from spineflow.tasks.detailed_groups.postprocess.run import stages_of
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.topdown.checks.replicate import read_dataset
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.paths import geography_file, invariants_file
from spineflow.tasks.topdown.release.margins import has_margins
from spineflow.tasks.topdown.release.tabulations.run import has_legacy, tabulated_universes
from spineflow.tasks.topdown.spine.build import universe_categories, universe_spine

Tree = dict[str, Any]

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
    excused : settings without a toggle, and why.
    by_data : settings that may change nothing beside a base, because of the data or of what they
        state; in one base at least they change something.
    """

    product: Product
    toggles: Mapping[str, tuple[Any, ...]]
    made_of: Callable[[Path, ProductSettings], str]
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

    def effect(self, tree: Tree, folder: Path) -> str | None:
        """A digest of what a run of some settings makes; None if they are refused."""
        file = folder / "settings.toml"
        file.write_text(tomli_w.dumps(tree))
        try:
            return self.made_of(folder, self.product.load(file))
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


def run_to_tables(product: Product) -> Callable[[Path, ProductSettings], str]:
    """Run the steps up to the checks in this process, and digest what was measured and is to be
    released, with what it costs.
    """

    def made_of(folder: Path, settings: ProductSettings) -> str:
        number = sum(1 for path in folder.iterdir() if path.is_dir())
        run = RunDirectory(folder / f"run-{number}")
        run.root.mkdir()
        text = dump_settings(settings)
        start_run(run, product=product.name, settings_text=text, stamp=settings.stamp)
        steps = product.order(run, settings)
        run_in_process(run, takewhile(lambda wave: "checks" not in wave, steps))
        found = {"costs": json.dumps(product.costs(settings), sort_keys=True)}
        for name in ("measurements", "release-unchecked"):
            for path in sorted((run.root / name).rglob("*")):
                if path.is_file() and path.stem != "certificate":
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    found[path.relative_to(run.root).as_posix()] = digest
        return digest_of(found)

    return made_of


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


def idle(search: Search, bases: Mapping[str, Tree], folder: Path) -> tuple[list[str], set[str]]:
    """Toggles that do nothing and are not refused, and the settings that did something."""
    found, effective = [], set()
    for name, base in bases.items():
        first = search.effect(base, folder)
        assert first is not None, f"the base {name!r} is refused"
        for key, value, tree in search.changed(base):
            effect = search.effect(tree, folder)
            if effect not in (None, first):
                effective.add(key)
            if effect == first and key not in search.by_data:
                found.append(f"{name}: {key} = {value!r}")
    return found, effective


# -------- trips

TRIPS_SEARCH = Search(
    TRIPS,
    {
        "input.count": ("weight",),
        "input.person": ("person", ABSENT),
        "input.destination_areas": ("others.csv",),
        "privacy.epsilon": ("2",),
        "privacy.delta": ("1/100000",),
        "privacy.conversion": ("tight",),
        "privacy.rho": ("1/7",),
        "privacy.neighbors": ("bounded", "unbounded"),
        "privacy.trips_per_person": (1, 2, 3),
        "privacy.distinct_trips": (True,),
        "privacy.excess_trips": ("refused", "dropped"),
        "privacy.total": ("measured",),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
        "mechanism.name": (
            "inftda",
            "tda_l2",
            "tda_chebyshev",
            "inftda_full_information",
            "gaussian_leaves",
            "stability_histogram",
        ),
        "mechanism.tree": ("origin",),
        "mechanism.remove_small_values": ("last",),
        "mechanism.shares": ("geometric", "optimised", ["1/2", "1/6", "1/6", "1/6"]),
        "mechanism.share_ratio": ("2",),
        "mechanism.projection": ("euclidean",),
        "mechanism.most_nodes": (1,),
        "input.public_levels": (True,),
    },
    run_to_tables(TRIPS),
    excused={
        **dict.fromkeys(
            (
                "input.trips",
                "input.origin",
                "input.destination",
                "input.areas",
                "input.table",
                "input.levels",
            ),
            "where the data are",
        )
    },
    by_data={
        "input.person": "the table is held to what is promised, which it keeps",
        "input.destination_areas": "areas without trips matter where empty cells are measured",
        "mechanism.name": "projections may agree",
        "mechanism.projection": "projections may agree",
        "mechanism.remove_small_values": "no small value may be left to remove",
        "input.public_levels": "goes with confidential input, which is refused here for its seed",
        "privacy.excess_trips": "nobody may have more trips than are promised",
        "privacy.total": "may say what follows from the neighbours",
    },
)

TRIPS_BASE: Tree = {
    "input": {
        "trips": "trips.csv",
        "origin": "home",
        "destination": "work",
        "areas": "areas.csv",
        "confidential": False,
    },
    "privacy": {"dataset": "d", "epsilon": "1", "delta": "1/1000000", "seed": 1},
}
SEVERAL: Tree = {
    "input": {"person": "person"},
    "privacy": {"trips_per_person": 3, "total": "measured"},
}
TRIPS_BASES: dict[str, Tree] = {
    "inftda": TRIPS_BASE,
    "geometric": merged(TRIPS_BASE, {"mechanism": {"shares": "geometric", "share_ratio": "3"}}),
    "l2": merged(TRIPS_BASE, {"mechanism": {"name": "tda_l2"}}),
    "highs": merged(TRIPS_BASE, {"mechanism": {"name": "tda_chebyshev"}}),
    "full": merged(TRIPS_BASE, {"mechanism": {"name": "inftda_full_information"}}),
    "selected": merged(
        TRIPS_BASE, {"mechanism": {"name": "inftda_full_information", "most_nodes": 1}}
    ),
    "leaves": merged(TRIPS_BASE, {"mechanism": {"name": "gaussian_leaves"}}),
    "stability": merged(TRIPS_BASE, {"mechanism": {"name": "stability_histogram"}}),
    "unbounded": merged(TRIPS_BASE, {"privacy": {"neighbors": "unbounded"}}),
    "several": merged(TRIPS_BASE, SEVERAL),
    "distinct": merged(TRIPS_BASE, SEVERAL, {"privacy": {"distinct_trips": True}}),
    "dropped": merged(
        TRIPS_BASE,
        {"input": {"person": "person"}, "privacy": {"excess_trips": "dropped"}},
    ),
    "rho": {
        "input": TRIPS_BASE["input"],
        "privacy": {"dataset": "d", "rho": "1/5", "seed": 1},
    },
    "table": {
        "input": {
            "table": "table.csv",
            "levels": ["province", "town", "sex"],
            "areas": "values.csv",
            "confidential": False,
        },
        "privacy": TRIPS_BASE["privacy"],
    },
}


def write_trips(folder: Path) -> None:
    """Trips of six hundred persons, up to three each in distinct cells, most in few of them."""
    random = np.random.default_rng(5)
    towns = {f"{province}{i}": province for province in "ABC" for i in range(4)}
    names = list(towns)
    n = len(names)
    weight = 1 / np.arange(1, n * n + 1) ** 1.3
    cells = random.permutation(n * n)
    rows = [
        (person, names[cell // n], names[cell % n], 1 + person % 3)
        for person in range(600)
        for cell in random.choice(
            cells, size=1 + person % 3, replace=False, p=weight / weight.sum()
        )
    ]
    frame = pd.DataFrame(rows, columns=["person", "home", "work", "weight"])
    frame.to_csv(folder / "trips.csv", index=False)
    areas = [("province", name, "") for name in "ABC"]
    areas += [("town", name, above) for name, above in towns.items()]
    columns = ["level", "area", "parent"]
    pd.DataFrame(areas, columns=columns).to_csv(folder / "areas.csv", index=False)
    others = [*areas, ("town", "B9", "B")]
    pd.DataFrame(others, columns=columns).to_csv(folder / "others.csv", index=False)
    values = [*areas, ("sex", "f", ""), ("sex", "m", "")]
    pd.DataFrame(values, columns=columns).to_csv(folder / "values.csv", index=False)
    table = pd.DataFrame(
        {
            "province": [towns[name] for name in frame["home"]],
            "town": frame["home"],
            "sex": np.where(frame["person"] % 2, "f", "m"),
            "weight": frame["weight"],
        }
    )
    table.to_csv(folder / "table.csv", index=False)


# -------- group sizes

GROUP_SIZES_SEARCH = Search(
    GROUP_SIZES,
    {
        "privacy.epsilon": ("2",),
        "privacy.rho": ("1/7",),
        "privacy.neighbors": ("unbounded", "bounded"),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
        "invariants.groups": (True, 900, ABSENT),
        "invariants.level": ("nation", "state", "county", "State"),
        "geography.levels": (["State", "County"], ["State", "County", "Tract"]),
        "mechanism.name": (
            "hierarchical",
            "hierarchical_dp",
            "cumulative",
            "cumulative_dp",
            "chain_dp",
            "topdown",
        ),
        "mechanism.smallest_size": (0, 1),
        "mechanism.largest_size": (9,),
        "mechanism.top_coded": (False,),
        "mechanism.largest_quantity": (1, 2),
        "mechanism.levels": (
            {"nation": "0", "state": "1/3", "county": "2/3"},
            {"US": "0", "State": "1/3", "County": "2/3"},
        ),
        "mechanism.calibration": ("proven", "published"),
    },
    run_to_tables(GROUP_SIZES),
    excused={
        "invariants.numbers": "a table that the input is held against",
        **{
            f"input.{name}": "where the data are"
            for name in ("records", "sizes", "regions", "persons", "units", "geography")
        },
    },
    by_data={
        "invariants.groups": "a number is held against the input, which has as many",
        "mechanism.smallest_size": "may say what follows from the input",
        "mechanism.top_coded": "there may be no group above the largest size",
        "mechanism.largest_quantity": "records are held to it, and keep it",
        "mechanism.calibration": "the published scale is the proven one where that is in its "
        "table; the run then protects nobody in words alone",
        "mechanism.name": "the mechanism that is chosen may be named",
        "invariants.level": "the level that is public anyway may be named",
        "geography.levels": "the levels that are there anyway may be named",
    },
)

SIZES_BASE: Tree = {
    "input": {"sizes": "sizes.parquet", "regions": "regions.csv", "confidential": False},
    "invariants": {"groups": True},
    "mechanism": {"largest_size": 12},
    "privacy": {"dataset": "d", "epsilon": "1", "seed": 1},
}
GROUP_SIZES_BASES: dict[str, Tree] = {
    **{
        name: merged(SIZES_BASE, {"mechanism": {"name": name}})
        for name in GROUP_SIZES_SEARCH.toggles["mechanism.name"]
    },
    "by region": merged(SIZES_BASE, {"invariants": {"level": "county"}}),
    "published": merged(
        SIZES_BASE, {"mechanism": {"name": "chain_dp", "calibration": "published"}}
    ),
    "rho": {**SIZES_BASE, "privacy": {"dataset": "d", "rho": "1/5", "seed": 1}},
    "records": {
        **SIZES_BASE,
        "input": {"records": "records.csv", "regions": "regions.csv", "confidential": False},
    },
    "census": {
        "input": {
            "persons": "county/persons.parquet",
            "units": "county/units.parquet",
            "geography": "county/grfc.txt",
            "confidential": False,
        },
        "mechanism": {"largest_size": 12},
        "privacy": SIZES_BASE["privacy"],
    },
}


def write_groups(folder: Path) -> None:
    write_dataset(folder, census_like(groups=900, counties=6, states=2, largest=20))
    regions = pd.read_csv(folder / "regions.csv", dtype=str)
    counties = regions.loc[regions["level"] == "county", "region"].to_numpy()
    random = np.random.default_rng(3)
    unit = random.integers(0, 80, 200)
    records = pd.DataFrame(
        {"person": np.arange(200), "unit": unit, "region": counties[unit % counties.size]}
    )
    records.to_csv(folder / "records.csv", index=False)
    generate_county(folder / "county", persons=2_000)


# -------- detailed groups

DETAILED_GROUPS_SEARCH = Search(
    DETAILED_GROUPS,
    {
        "mechanism.definition": ("zcdp", "puredp"),
        "mechanism.max_race_codes": (8, 3),
        "mechanism.stage_1_fraction": ("1/5",),
        "mechanism.budgets": (
            {"COUNTY": {"2": "3"}},
            {"PR-COUNTY": {"2": "3"}},
            {"COUNTY": {"1": "0", "2": "0"}, "TRACT": {"1": "0", "2": "0"}},
        ),
        "mechanism.thresholds": (
            {"COUNTY": {"2": [5, 10, 20]}},
            {"PR-COUNTY": {"2": [5, 10, 20]}},
            {"AIANNH": {"1": [5, 10, 20]}},
        ),
        "mechanism.zero_suppression_chance": ("9/10", "0"),
        "mechanism.allow_negative_counts": (False,),
        "mechanism.run_us": (False,),
        "mechanism.run_pr": (True,),
        "mechanism.states": (["09"],),
        "mechanism.coterminous": (True,),
        "mechanism.summary_levels": (
            (
                "TRACT",
                "COUNTY",
                "USA",
                "STATE",
                "PLACE",
                "AIANNH",
                "PR-STATE",
                "PR-COUNTY",
                "PR-TRACT",
                "PR-PLACE",
            ),
        ),
        "mechanism.units_are_invariant": (True,),
        "mechanism.suppress_alone_above_combination": (True, "cells"),
        "explorer.margin": (5,),
        "explorer.threshold": (9,),
        "explorer.decimals": (1,),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
    },
    lambda folder, settings: digest_of(
        [
            DETAILED_GROUPS.costs(settings),
            repr(parameters_of(settings)),
            stages_of(settings),
            settings.mechanism.suppress_alone_above_combination,
            settings.mechanism.coterminous
            and [settings.mechanism.summary_levels, settings.mechanism.units_are_invariant],
            settings.privacy.seed,
        ]
    ),
    excused={
        f"input.{name}": "where the data and the parameters are"
        for name in ("parameters", "data", "persons", "units", "geography", "region_names")
    },
    by_data={
        "mechanism.run_us": "false is refused where the other pass is not run",
        "mechanism.definition": "may say what config.json says",
        "mechanism.max_race_codes": "may say what config.json says",
    },
)

GROUPS_BASE: Tree = {
    "input": {"parameters": "params", "data": "data", "confidential": False},
    "privacy": {"dataset": "d", "seed": 1},
}
NO_SUB_STATE = {name: {"1": "0", "2": "0"} for name in ("COUNTY", "TRACT", "PLACE", "AIANNH")}
DETAILED_GROUPS_BASES: dict[str, Tree] = {
    "as configured": GROUPS_BASE,
    "pure": merged(GROUPS_BASE, {"mechanism": {"definition": "puredp"}}),
    "coterminous": merged(GROUPS_BASE, {"mechanism": {"coterminous": True}}),
    "nothing suppressed": merged(GROUPS_BASE, {"mechanism": {"zero_suppression_chance": "0"}}),
    "Puerto Rico": merged(GROUPS_BASE, {"mechanism": {"run_us": False, "run_pr": True}}),
    "both passes": merged(GROUPS_BASE, {"mechanism": {"run_pr": True}}),
    "nation and states": merged(GROUPS_BASE, {"mechanism": {"budgets": NO_SUB_STATE}}),
    "target": merged(GROUPS_BASE, {"explorer": {"margin": 7}}),
    "census tables": {
        **merged(GROUPS_BASE, {"mechanism": {"coterminous": True}}),
        "input": {
            "parameters": "params",
            "persons": "persons.parquet",
            "units": "units.parquet",
            "geography": "grfc.txt",
            "confidential": False,
        },
    },
}


def write_detailed_groups(folder: Path) -> None:
    generate_specification(folder / "params", detailed=6, ethnicities=2, states=("44",))
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=300, tracts=4)


# -------- topdown


def topdown_made(folder: Path, settings: Any) -> str:
    """What is measured, estimated and tabulated, from the settings and the public geography."""
    run = RunDirectory(folder / "read")
    geography = read_geography(geography_file(run))
    invariants = read_invariants(invariants_file(run))
    found: list[Any] = [
        TOPDOWN.costs(settings),
        settings.run.estimator,
        settings.privacy.seed,
        settings.privacy.infinite,
        tabulated_universes(settings),
        has_legacy(settings),
        has_margins(settings),
    ]
    for universe in settings.run.universes:
        spine = universe_spine(settings, universe, geography, invariants)
        found.append([universe, repr(settings.budget_of(universe))])
        found.append(repr(settings.zeros_of(universe)))
        found.append(settings.schema_of(universe).attributes)
        for level in spine.geolevels:
            if not settings.blocks_only or level is spine.geolevels[-1]:
                found.append(repr(settings.passes_of(universe, level.name)))
            found.append(
                [
                    level.name,
                    [str(share) for share in level.plb_shares],
                    level.plb_share_code.tolist(),
                    level.parent.tolist(),
                    level.bypassed.tolist(),
                    list(map(str, level.geocode)),
                ]
            )
        categories = universe_categories(settings, universe, geography, invariants)
        found.append([[c.name, np.asarray(c.entity).tolist()] for c in categories])
    return digest_of(found)


HALVES = {"total": "1/2", "detailed": "1/2"}
PASSES = {"least_squares": [["all"]], "rounder": [["total", "detailed"]]}

TOPDOWN_SEARCH = Search(
    TOPDOWN,
    {
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
        "geography.spine": ("conventional", "aian", "optimized"),
        "geography.fanout_cutoff": (0,),
        "geography.block_groups": ("even", "production"),
        "geography.tract_subset_groups": ("even", "greedy"),
        "geography.bypass": (False,),
        "geography.bypass_cutoff": (2, "none"),
        "geography.categories": (["place"], ["group_quarters"], ["block_group"]),
        "geography.school_district_column": ("SDUNI", "COUSUBFP"),
        "geography.strong_mcd_states": (["35"],),
        "geography.aian_areas": ([],),
        "geography.aian_ranges": (
            [{"low": "0001", "high": "9998", "area": "any", "on_spine": False}],
        ),
        "run.universes": (["persons"],),
        "run.estimator": ("topdown", "block_by_block", "full_information"),
        "release.tables": (False,),
        "release.pl94171": (False,),
        "release.margins": (False,),
        "budget.persons.rho": ("3",),
        "budget.persons.epsilon": ("3",),
        "budget.persons.delta": ("1/1000000",),
        "budget.persons.mechanism": ("discrete_laplace", "discrete_gaussian"),
        "budget.persons.geolevels": (
            {"US": "1/6", "State": "1/6", "County": "1/6", "Tract": "1/6", "Block_Group": "1/6"}
            | {"Block": "1/6"},
        ),
        "budget.persons.queries.County": (HALVES,),
        "budget.persons.queries.Prim": (HALVES,),
        "workload.persons.passes.County": (PASSES,),
        "workload.persons.passes.Prim": (PASSES,),
        "workload.persons.passes.other": (PASSES,),
        "workload.persons.attributes": (["hhgq", "votingage", "hispanic", "cenrace"],),
        "workload.persons.structural_zeros": (
            [{"name": "nobody", "where": {"hhgq": [4], "votingage": [1]}}],
        ),
    },
    topdown_made,
    excused={
        "measured": "belongs to the flow estimate, and is refused",
        "census": "what is counted; declared censuses are settings of their own",
        "input": "where the data are",
        "budget": "toggled key by key",
        "workload": "toggled key by key",
    },
    by_data={
        "geography.school_district_column": "the column that is there anyway may be named",
        "geography.strong_mcd_states": "there may be no subdivision to tell areas apart",
        "geography.block_groups": "both cuts may form the same groups",
        "geography.tract_subset_groups": "both searches may form the same groups",
        "geography.fanout_cutoff": "no group may have as many members",
        "geography.bypass_cutoff": "no geounit may have as many children",
        "geography.aian_areas": "there may be no area of these types",
        "geography.categories": "the categories that are there anyway may be named",
        "geography.spine": "may be the one there is",
        "run.estimator": "may be the one there is",
        "budget.persons.mechanism": "may be the one there is",
        "workload.persons.attributes": "may be those of the census",
    },
)

TOPDOWN_BASE: Tree = {
    "preset": "pl94_2020_us",
    "input": {
        "persons": "county/persons.parquet",
        "units": "county/units.parquet",
        "geography": "county/grfc.txt",
        "confidential": False,
    },
    "privacy": {"dataset": "d", "seed": 1},
}
PURE = {name: {"mechanism": "discrete_laplace", "epsilon": "2"} for name in ("persons", "units")}
TOPDOWN_BASES: dict[str, Tree] = {
    "optimized": TOPDOWN_BASE,
    "conventional": merged(TOPDOWN_BASE, {"geography": {"spine": "conventional"}}),
    "aian": merged(TOPDOWN_BASE, {"geography": {"spine": "aian"}}),
    "pure": merged(TOPDOWN_BASE, {"budget": PURE}),
    "pure without bypass": merged(TOPDOWN_BASE, {"budget": PURE, "geography": {"bypass": False}}),
    "blocks": merged(TOPDOWN_BASE, {"run": {"estimator": "block_by_block"}}),
    "no tables": merged(TOPDOWN_BASE, {"release": {"tables": False}}),
    "persons": merged(TOPDOWN_BASE, {"run": {"universes": ["persons"]}}),
    "own categories": merged(TOPDOWN_BASE, {"geography": {"categories": ["group_quarters"]}}),
    "dhc": {**TOPDOWN_BASE, "preset": "dhc_equal"},
}


def write_topdown(folder: Path) -> None:
    generate_county(folder / "county", persons=3_000)
    file = folder / "settings.toml"
    file.write_text(tomli_w.dumps(TOPDOWN_BASE))
    read_dataset(TOPDOWN.load(file), folder / "read")


# -------- all of them

SEARCHES: dict[str, tuple[Search, dict[str, Tree], Callable[[Path], None]]] = {
    "trips": (TRIPS_SEARCH, TRIPS_BASES, write_trips),
    "group-sizes": (GROUP_SIZES_SEARCH, GROUP_SIZES_BASES, write_groups),
    "detailed-groups": (DETAILED_GROUPS_SEARCH, DETAILED_GROUPS_BASES, write_detailed_groups),
    "topdown": (TOPDOWN_SEARCH, TOPDOWN_BASES, write_topdown),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_is_toggled_or_excused(name: str) -> None:
    search = SEARCHES[name][0]
    known = set(keys_of(search.product.settings))
    considered = {*search.toggles, *search.excused, *EXCUSED}
    assert not known - considered
    tables = {key.partition(".")[0] for key in known}
    assert not [key for key in considered - known if key.partition(".")[0] not in tables]


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_no_setting_does_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    search, bases, write = SEARCHES[name]
    write(tmp_path)
    # Hundreds of runs: the second opinion on the input and the disk are tested elsewhere.
    monkeypatch.setattr("spineflow.tasks.tables.tally.run_suites", lambda *_: ())
    monkeypatch.setattr("os.fsync", lambda _: None)
    found, effective = idle(search, bases, tmp_path)
    assert not found, "\n".join(found)
    never = set(search.toggles) - effective - NEVER_EFFECTIVE
    assert not never, f"toggles that are refused everywhere: {never}"


NEVER_EFFECTIVE = {
    "input.person",
    "input.public_levels",
    "privacy.excess_trips",
    "invariants.groups",
    "mechanism.top_coded",
    "geography.tract_subset_groups",
    "budget.persons.queries.County",
    "budget.persons.queries.Prim",
    "workload.persons.passes.Prim",
    "workload.persons.attributes",
}
"""Toggles that are there to be refused, that state what holds anyway, or whose effect a county of
three thousand persons is too small to show."""


REFUSED = {
    "shared by nobody": (
        PRODUCTS,
        {"run": {"workers": 3}, "products": {"group-sizes": {"run": {"workers": 2}}}},
        "run.workers does nothing",
    ),
    "preset of all": (PRODUCTS, {"preset": "pl94_2020_us"}, "preset does nothing here"),
    "a product's own": (
        PRODUCTS,
        {"products": {"group-sizes": {"run": {"dask_address": "tcp://x:1"}}}},
        "products.group-sizes: run.dask_address does nothing",
    ),
    "preset of a search": (TUNE, {"preset": "pl94_2020_us"}, "preset does nothing here"),
    "criterion of the other kind": (
        TUNE,
        {"criterion": {"level": "tract"}},
        "criterion.level does nothing",
    ),
    "grid of no search": (
        TUNE,
        {"search": {"method": "fixed", "step": "2"}},
        "search.step does nothing",
    ),
    "a variant's change": (
        TUNE,
        {"variants": {"one": {"geography": {"spine": "aian", "fanout_cutoff": 3}}}},
        "variants.one: geography.fanout_cutoff does nothing",
    ),
    "what a search tries": (
        TUNE,
        {"topdown": {"preset": "pl94_2020_us", "release": {"tables": False, "pl94171": False}}},
        "topdown: release.pl94171 does nothing",
    ),
}
TOGETHER: dict[str, Tree] = {
    "products": {
        "input": TOPDOWN_BASE["input"],
        "privacy": {"dataset": "d"},
        "products": {"group-sizes": {"privacy": {"epsilon": "1"}}},
    },
    "tune": {
        "input": TOPDOWN_BASE["input"],
        "privacy": {"dataset": "d"},
        "topdown": {"preset": "pl94_2020_us"},
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_flows_of_other_flows_refuse_what_does_nothing(case: str, tmp_path: Path) -> None:
    product, change, words = REFUSED[case]
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(TOGETHER[product.name]))
    product.load(file)
    tree = deepcopy(TOGETHER[product.name])
    for section, table in change.items():
        if isinstance(table, dict) and section == "products":
            merged_product = merged(tree["products"]["group-sizes"], table["group-sizes"])
            tree["products"]["group-sizes"] = merged_product
        else:
            tree = merged(tree, {section: table})
    file.write_text(tomli_w.dumps(tree))
    with pytest.raises(InputRefused, match=words):
        product.load(file)
