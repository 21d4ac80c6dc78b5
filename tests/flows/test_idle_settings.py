"""Settings without an effect beside the others are refused under their own keys."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from spineflow.tasks.detailed_groups.ingest.generate import generate_specification
from spineflow.tasks.products.product import product as product_named
from spineflow.tasks.runs.errors import InputRefused

FILES = {
    "topdown": 'persons = "p.csv"\nunits = "u.csv"\ngeography = "g.csv"',
    "detailed-groups": 'parameters = "params"\ndata = "data"',
    "supplemental-dhc": 'persons = "p.csv"\nunits = "u.csv"\ngeography = "g.csv"',
    "group-sizes": 'sizes = "sizes.csv"\nregions = "regions.csv"',
    "trips": 'trips = "t.csv"\norigin = "home"\ndestination = "work"\nareas = "areas.csv"',
}
BASES = {
    "topdown": 'preset = "pl94_2020_us"\n[privacy]\n',
    "detailed-groups": "[privacy]\n",
    "supplemental-dhc": 'preset = "supplemental_dhc_2020_us"\n[privacy]\n',
    "group-sizes": 'invariants.groups = true\nmechanism.largest_size = 12\nprivacy.epsilon = "1"\n',
    "trips": '[privacy]\nepsilon = "1"\ndelta = "1/1000000"\n',
}
HALVES = '{ total = "1/2", detailed = "1/2" }'
PASSES = '{ least_squares = [["all"]], rounder = [["total", "detailed"]] }'
LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
SIXTHS = "{ " + ", ".join(f"{level} = '1/6'" for level in LEVELS) + " }"
SUMMARY_LEVELS = ["TRACT", "COUNTY", "USA", "STATE", "PLACE", "AIANNH"]
SUMMARY_LEVELS += ["PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE"]
BLOCKS = 'run.estimator = "block_by_block"'

IDLE = {
    "topdown": [
        ("", "run.dask_address", '"tcp://x:1"'),
        ("", "geography.tract_subset_groups", '"even"'),
        ("", "geography.bypass_cutoff", "2"),
        ('geography.spine = "conventional"', "geography.fanout_cutoff", "0"),
        ('geography.spine = "conventional"', "geography.block_groups", '"production"'),
        (BLOCKS, "geography.bypass", "false"),
        (BLOCKS, "budget.persons.geolevels", SIXTHS),
        ("", "budget.persons.queries.Prim", HALVES),
        ("", "workload.persons.passes.Prim", PASSES),
        ("release.tables = false", "release.pl94171", "false"),
        ("workload.persons.on_demand = true", "release.margins", "false"),
    ],
    "detailed-groups": [
        ("", "mechanism.summary_levels", str(SUMMARY_LEVELS)),
    ],
    "supplemental-dhc": [
        ("", "mechanism.confidence", '"99/100"'),
    ],
    "group-sizes": [
        ('mechanism.name = "hierarchical"', "mechanism.largest_quantity", "2"),
        (
            'mechanism.name = "chain_dp"\nmechanism.calibration = "published"',
            "privacy.neighbors",
            '"bounded"',
        ),
    ],
    "trips": [
        ("", "privacy.distinct_trips", "true"),
        ("", "mechanism.share_ratio", '"2"'),
        ("", "mechanism.projection", '"euclidean"'),
        ("", "mechanism.most_nodes", "1"),
        ("", "mechanism.shares", '"geometric"'),
        ('mechanism.name = "gaussian_leaves"', "mechanism.tree", '"origin"'),
        ('mechanism.name = "tda_chebyshev"', "mechanism.remove_small_values", '"last"'),
        ('mechanism.name = "stability_histogram"', "privacy.conversion", '"tight"'),
    ],
    "products": [
        ("", "preset", '"pl94_2020_us"'),
        ("", "products.group-sizes.run.dask_address", '"tcp://x:1"'),
    ],
    "tune": [
        ("", "preset", '"pl94_2020_us"'),
        ("", "criterion.level", '"tract"'),
        ('search.method = "fixed"', "search.step", '"2"'),
        ('variants.one.geography.spine = "aian"', "variants.one.geography.fanout_cutoff", "3"),
        ("topdown.release.tables = false", "topdown.release.pl94171", "false"),
    ],
}
"""By product: settings beside its base, the key of a setting that they leave without an effect, and
its value."""
FILES |= {"products": FILES["topdown"], "tune": FILES["topdown"]}
BASES |= {
    "products": '[products.group-sizes.privacy]\nepsilon = "1"\n',
    "tune": '[topdown]\npreset = "pl94_2020_us"\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with parameters of detailed groups."""
    folder = tmp_path_factory.mktemp("idle")
    generate_specification(folder / "params", detailed=6, ethnicities=2, households=True)
    return folder


def merged(tree: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A tree with what another says, table by table."""
    for key, value in other.items():
        own = tree.get(key)
        tree[key] = merged(own, value) if isinstance(own, dict) else value
    return tree


@pytest.mark.parametrize(
    ("product", "beside", "key", "value"),
    [(product, *case) for product, cases in IDLE.items() for case in cases],
)
def test_a_setting_without_an_effect_is_refused(
    product: str, beside: str, key: str, value: str, folder: Path
) -> None:
    tree = tomllib.loads(BASES[product])
    merged(tree, tomllib.loads(f"[input]\n{FILES[product]}\nconfidential = false\n"))
    merged(tree, {"privacy": {"dataset": "d"}})
    merged(tree, tomllib.loads(beside))
    file, with_key = (
        folder / "settings.toml",
        merged(deepcopy(tree), tomllib.loads(f"{key}={value}")),
    )
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    if product_named(product).load(file) is None:
        pytest.fail("the settings beside it are refused")
    file.write_text(tomli_w.dumps(with_key), encoding="utf-8")
    last = key.removeprefix("products.group-sizes.").removeprefix("variants.one.")
    with pytest.raises(InputRefused, match=rf"{last.removeprefix('topdown.')}\b.* (does|is) "):
        product_named(product).load(file)
