"""The real state beside the repository: what the optimised spine does to its entities."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.categories import off_spine_categories
from spineflow.geography.rules import AianRange, SpineRules
from spineflow.geography.spine import build_spine
from spineflow.geography.variance import summarise_spines, total_share

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared"),
]


@pytest.fixture(scope="module")
def facts() -> dict:
    return tomllib.loads((SHARED / "facts" / "pl94_2020_production.toml").read_text())


@pytest.fixture(scope="module")
def state() -> tuple[pd.DataFrame, np.ndarray]:
    """Blocks with a housing unit or an occupied facility, and their facilities by type."""
    folder = SHARED / "data" / "ri2010"
    table = pd.read_csv(folder / "grfc.txt", sep="|", dtype="str")
    parts = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    table["block_geocode"] = table[parts].agg("".join, axis=1)
    units = pd.read_parquet(folder / "units.parquet").astype({"OIDTB": "str", "RTYPE": "int64"})
    block = units["OIDTB"].map(table.set_index("OIDTABBLK")["block_geocode"])
    is_facility = (units["RTYPE"] == 4) & (units["FINAL_POP"].astype("int64") > 0)
    is_used = (units["RTYPE"] == 2) | is_facility
    kept = ["block_geocode", "AIANNHCE", "COUSUBFP", "PLACEFP", "SDUNI"]
    geography = table.loc[table["block_geocode"].isin(set(block[is_used])), kept]
    geography = geography.sort_values("block_geocode", ignore_index=True)
    # The first digit of a group-quarters code is the type, and 7 stands for all above it too.
    kind = units.loc[is_facility, "QGQTYP"].astype("str").str[0].astype("int64").clip(upper=7)
    facilities = np.zeros((len(geography), 7), dtype=np.int64)
    row = geography["block_geocode"].searchsorted(block[is_facility])
    np.add.at(facilities, (row, kind - 1), 1)
    return geography, facilities


@pytest.fixture(scope="module")
def state_rules(facts) -> SpineRules:
    return SpineRules(
        columns={
            "aian": "AIANNHCE",
            "mcd": "COUSUBFP",
            "place": "PLACEFP",
            "school_district": "SDUNI",
        },
        aian_ranges=tuple(AianRange(**entry) for entry in facts["geography"]["aian_ranges"]),
        strong_mcd_states=tuple(facts["geography"]["strong_mcd_states"]),
    )


N_ANSWERS = (1, 63, 2, 2, 3, 8, 126, 126, 4, 252, 2016)
"""Answers of the production run's queries of persons, in their order."""


@pytest.mark.slow
@pytest.mark.parametrize("universe", ["persons", "units"])
def test_no_targeted_category_moves_away(state, facts, state_rules, universe):
    geography, facilities = state
    group_quarters = facilities if universe == "persons" else None
    run = facts[universe]["US"]
    total_shares = {
        name: total_share([float(Fraction(text)) for text in shares], N_ANSWERS, is_pure=False)
        for name, shares in run.get("query_shares", {}).items()
    }
    spines = {
        kind: build_spine(
            geography,
            geolevel_shares={name: Fraction(text) for name, text in run["geolevels"].items()},
            kind=kind,
            rules=state_rules,
            is_pure=False,
            group_quarters=group_quarters,
        )
        for kind in ("aian", "optimized")
    }
    summary = summarise_spines(
        spines,
        off_spine_categories(geography, state_rules, group_quarters=group_quarters),
        is_pure=False,
        privacy_loss=float(Fraction(run["rho"])),
        total_shares=total_shares,
    )
    mean = summary.distances.pivot(index="category", columns="spine", values="mean")
    expected = {"aian", "mcd", "group_quarters"} if universe == "persons" else {"aian", "mcd"}
    assert set(mean.index) == expected
    assert (mean["optimized"] <= mean["aian"]).all()
    assert mean["optimized"].sum() < mean["aian"].sum()
    mean = summary.standard_deviations.pivot(index="category", columns="spine", values="mean")
    if universe == "persons":
        assert (mean["optimized"] < mean["aian"]).all()
    # Divisions made of whole tracts gain nothing from more block groups in those tracts.
    assert (mean["optimized"] < 1.01 * mean["aian"]).all()
