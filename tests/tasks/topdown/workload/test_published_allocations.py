"""The allocations of production's preset against tables 6 and 7 of [TopDown2022], as printed.

Table 6 sums to 3756/4099 for persons and to 4028/4100 for units: it gives the counties of persons
the figure of the United States, 104, and has two digits of the tracts' 364 of units the wrong way
round. The certificates of the production run have shares that add to one, and the presets take
those; nothing else of the table differs from them.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import cost_of

GEOLEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
TABLE_6 = {
    "persons": "104/4099 1440/4099 104/4099 687/4099 1256/4099 165/4099",
    "units": "1/205 1/205 7/82 346/1025 1759/4100 99/820",
}
"""As printed, from the United States down to blocks."""

MISPRINTED = {
    "persons": ("County", Fraction(447, 4099)),
    "units": ("Tract", Fraction(364, 1025)),
}
"""The one entry of a column that the certificates have otherwise."""

PRINTED_SUM = {"persons": Fraction(3756, 4099), "units": Fraction(4028, 4100)}

TABLE_7 = """\
total                             0         3773/4097 3126/4097 1567/4102 1705/4099 5/4097
cenrace                           52/4097   6/4097    10/4097   4/2051    3/4099    9/4097
hispanic                          26/4097   6/4097    10/4097   5/4102    3/4099    5/4097
votingage                         26/4097   6/4097    10/4097   5/4102    3/4099    5/4097
hhinstlevels                      26/4097   6/4097    10/4097   5/4102    3/4099    5/4097
hhgq                              26/4097   6/4097    10/4097   5/4102    3/4099    5/4097
hispanic*cenrace                  130/4097  12/4097   28/4097   1933/4102 1055/4099 21/4097
votingage*cenrace                 130/4097  12/4097   28/4097   10/2051   9/4099    21/4097
votingage*hispanic                26/4097   6/4097    10/4097   5/4102    3/4099    5/4097
"""
"""All of its rows but the last two, votingage*hispanic*cenrace and detailed."""


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> TopdownSettings:
    file = tmp_path_factory.mktemp("production") / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n'
        '[input]\npersons = "p.parquet"\nunits = "u.parquet"\ngeography = "g.txt"\n'
        '[privacy]\ndataset = "production"\n'
    )
    return load_settings(TopdownSettings, file, presets=PRESETS)


@pytest.mark.parametrize("universe", TABLE_6)
def test_table_6_as_printed_lacks_what_one_entry_of_each_column_lacks(
    production: TopdownSettings, universe: str
) -> None:
    printed = dict(zip(GEOLEVELS, map(Fraction, TABLE_6[universe].split()), strict=True))
    assert sum(printed.values()) == PRINTED_SUM[universe]
    geolevel, share = MISPRINTED[universe]
    assert share - printed[geolevel] == 1 - PRINTED_SUM[universe]
    ours = production.budget[universe].geolevels
    assert sum(ours.values()) == 1
    assert ours == printed | {geolevel: share}


def test_the_queries_shares_are_those_of_table_7_and_add_to_one(
    production: TopdownSettings,
) -> None:
    ours = production.budget["persons"].queries
    assert {geolevel: sum(shares.values()) for geolevel, shares in ours.items()} == dict.fromkeys(
        GEOLEVELS, 1
    )
    for line in TABLE_7.splitlines():
        query, *shares = line.split()
        name = query.replace("*", " * ")
        for geolevel, share in zip(GEOLEVELS, shares, strict=True):
            assert ours[geolevel].get(name, 0) == Fraction(share), (geolevel, query)


def test_the_paper_rounds_the_rho_of_the_certificates(production: TopdownSettings) -> None:
    persons, units = (production.budget[universe].rho for universe in ("persons", "units"))
    assert (round(persons, 2), round(units, 2)) == (Fraction("2.56"), Fraction("0.07"))
    assert round(persons + units, 2) == Fraction("2.63")


FIGURES = json.loads(Path(__file__).with_name("figures_by_rho.json").read_text(encoding="utf-8"))
"""Of a preset and universe, to the last digit but one: processors may differ in that."""


@pytest.mark.parametrize("of", FIGURES)
def test_figures_by_rho_are_as_they_were(of: str) -> None:
    preset, universe = of.split()
    files = ("persons", "units", "geography", *(["redistricting"] if "dhc" in preset else []))
    source = {
        "preset": preset,
        "input": dict.fromkeys(files, "/nowhere"),
        "privacy": {"dataset": "d"},
    }
    loaded = load_settings(TopdownSettings, source, presets=PRESETS)
    cost = cost_of(loaded, universe)
    found = {**cost.parts, "epsilon": dict(cost.epsilons), "rho": cost.plan.bounded_rho}
    for name, figures in FIGURES[of].items():
        assert found[name] == (
            figures if isinstance(figures, str) else pytest.approx(figures, rel=1e-14, abs=0)
        )
