"""No setting of products of persons does nothing, and none of the flows that run other flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from spineflow.flows.products import PRODUCT as PRODUCTS
from spineflow.flows.tune import PRODUCT as TUNE
from spineflow.tasks.census.invariants import read_geography, read_invariants
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_persons,
    generate_specification,
)
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.postprocess.run import stages_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.checks.replicate import read_dataset
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.paths import geography_file, invariants_file
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.release.margins import has_margins
from spineflow.tasks.topdown.release.tabulations.run import has_legacy, tabulated_universes
from spineflow.tasks.topdown.spine import build
from spineflow.tasks.topdown.spine.build import spines_of
from spineflow.tasks.topdown.workload.costs import budget_report

from tests.flows.idle_settings import (
    Search,
    Tree,
    digest_of,
    merged,
    refuse_idle,
    refuse_unconsidered,
    remembered,
)


def detailed_groups_made(_folder: Path, settings: Any) -> Iterator[tuple[str, str]]:
    """What is measured, and how it is released, from the settings and the parameters."""
    mechanism = settings.mechanism
    found = [
        mechanism.suppress_alone_above_combination,
        mechanism.coterminous and [mechanism.summary_levels, mechanism.units_are_invariant],
        settings.privacy.seed,
    ]
    yield "settings", digest_of(found)
    yield "parameters", digest_of(repr(parameters_of(settings)))
    yield "stages", digest_of(stages_of(settings))
    yield "costs", digest_of(DETAILED_GROUPS.costs(settings))


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
        "mechanism.margins": ({"STATE": {"1": 30}}, {"COUNTY": {"2": 9}}),
        "mechanism.confidence": ("99/100",),
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
        "explorer.relative_errors": (["1/4"],),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
    },
    detailed_groups_made,
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
    "wanted": merged(GROUPS_BASE, {"mechanism": {"margins": {"STATE": {"1": 40}}}}),
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


@cache
def public_tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The geography and the invariants that were read, which no setting changes."""
    run = RunDirectory(folder / "read")
    return read_geography(geography_file(run)), read_invariants(invariants_file(run))


def topdown_made(folder: Path, settings: Any) -> Iterator[tuple[str, str]]:
    """What is measured, estimated and tabulated, from the settings and the public geography."""
    geography, invariants = public_tables(folder)
    found: list[Any] = [
        settings.run.estimator,
        settings.privacy.seed,
        settings.privacy.infinite,
        tabulated_universes(settings),
        has_legacy(settings),
        has_margins(settings),
        settings.run.universes,
    ]
    yield "settings", digest_of(found)
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)  # All that exact costs follow from, which take long.
        found = [
            repr(budget),
            repr(settings.zeros_of(universe)),
            repr(settings.compiled_census.universes[universe].agreements),
            [settings.schema_of(universe).attributes, settings.is_on_demand(universe)],
        ]
        yield f"{universe} declared", digest_of(found)
        yield (
            f"{universe} costs",
            digest_of(budget_report(budget, settings.schema_of(universe))),
        )
        spine = spines_of(settings).spine(universe, (geography, invariants))
        for level in spine.geolevels:
            found = [
                [str(share) for share in level.plb_shares],
                level.plb_share_code.tolist(),
                level.parent.tolist(),
                level.bypassed.tolist(),
                list(map(str, level.geocode)),
            ]
            if not settings.blocks_only or level is spine.geolevels[-1]:
                found.append(repr(settings.passes_of(universe, level.name)))
            yield f"{universe} {level.name}", digest_of(found)
        categories = spines_of(settings).categories(universe, (geography, invariants))
        yield (
            f"{universe} categories",
            digest_of([[c.name, np.asarray(c.entity).tolist()] for c in categories]),
        )


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
        "run.coherent": (True,),
        "release.tables": (False,),
        "release.pl94171": (False,),
        "release.margins": (False,),
        "budget.persons.rho": ("3",),
        "budget.persons.epsilon": ("3",),
        "budget.persons.delta": ("1/1000000",),
        "budget.persons.accounting": ("exact",),
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
        "workload.persons.on_demand": (True,),
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
        "input.geometry": "shapes that the report's map is drawn with",
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
    "on demand": merged(TOPDOWN_BASE, {"workload": {"persons": {"on_demand": True}}}),
    "by epsilon": merged(
        TOPDOWN_BASE, {"budget": {"persons": {"epsilon": "17", "delta": "1/10000000000"}}}
    ),
}


def write_topdown(folder: Path) -> None:
    generate_county(folder / "county", persons=3_000)
    file = folder / "settings.toml"
    file.write_text(tomli_w.dumps(TOPDOWN_BASE))
    read_dataset(TOPDOWN.load(file), folder / "read")


SEARCHES: dict[str, tuple[Search, dict[str, Tree], Callable[[Path], None]]] = {
    "detailed-groups": (DETAILED_GROUPS_SEARCH, DETAILED_GROUPS_BASES, write_detailed_groups),
    "topdown": (TOPDOWN_SEARCH, TOPDOWN_BASES, write_topdown),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_is_toggled_or_excused(name: str) -> None:
    refuse_unconsidered(SEARCHES[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_no_setting_does_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    search, bases, write = SEARCHES[name]
    write(tmp_path)
    # Most settings leave most arguments of these as they are.
    for function in ("build_spine", "off_spine_categories"):
        monkeypatch.setattr(build, function, remembered(getattr(build, function)))
    refuse_idle(search, bases, tmp_path, monkeypatch, NEVER_EFFECTIVE)


NEVER_EFFECTIVE = {
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
