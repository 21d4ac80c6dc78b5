"""Settings of small private runs of every product, all of the same people, and their input."""

from __future__ import annotations

import tomllib
from pathlib import Path

import tomli_w
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.products.product import product
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.household_input import write_detailed_households
from tests.flows.schedules import PEOPLE

SMALL_COUNTRY = CountrySize(regions=2, provinces=3, municipalities=6, pairs=20, commuters=3000)


def settings_files(folder: Path, *, tables: bool = True) -> dict[str, Path]:
    """Settings of a small private run of each product, all of the same people; of topdown, units
    are measured on demand, and its tables may be left out. The ledger is `world/ledger.db`."""
    privacy = f'[privacy]\ndataset = "{PEOPLE}"\nledger = "{folder}/world/ledger.db"\n'
    county = folder / "county"
    generate_county(county, persons=FEWEST_PERSONS, seed=1)
    generate_specification(folder / "params", regional=2, detailed=3, ethnicities=1)
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "persons", codes, persons=400, tracts=2)
    write_dataset(folder / "groups", census_like(groups=400, counties=4, states=2, largest=8))
    generate_country(folder / "country", SMALL_COUNTRY, seed=5)
    housed = folder / "housed"
    write_detailed_households(housed)
    households = (
        f'[input]\npersons = "{housed}/persons.parquet"\nunits = "{housed}/units.parquet"\n'
        f'geography = "{housed}/grfc.txt"\n'
    )
    texts = {
        "topdown": f'preset = "pl94_2020_us"\n[input]\npersons = "{county}/persons.parquet"\n'
        f'units = "{county}/units.parquet"\ngeography = "{county}/grfc.txt"\n{privacy}'
        f"[workload.units]\non_demand = true\n[release]\ntables = {str(tables).lower()}\n",
        "detailed-groups": f'[input]\nparameters = "{folder}/params"\ndata = "{folder}/persons"\n'
        f"{privacy}",
        "detailed-households": f'{households}parameters = "{housed}/params"\n'
        f'groups = "{housed}/groups"\n{privacy}',
        "group-sizes": f'[input]\nsizes = "{folder}/groups/sizes.parquet"\n'
        f'regions = "{folder}/groups/regions.csv"\n[invariants]\ngroups = true\n'
        f'[mechanism]\nlargest_size = 8\n{privacy}epsilon = "1"\n',
        "trips": f'[input]\ntrips = "{folder}/country/trips.parquet"\norigin = "origin"\n'
        f'destination = "destination"\ncount = "commuters"\nareas = "{folder}/country/areas.csv"\n'
        f'{privacy}epsilon = "1"\ndelta = "1e-8"\n',
        "supplemental-dhc": f'preset = "supplemental_dhc_2020_us"\n{households}{privacy}',
    }
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name}.toml"
        files[name].write_text(text, encoding="utf-8")
    return files


def of_several(folder: Path, files: dict[str, Path]) -> dict[str, Path]:
    """Settings of small runs that are made of others: of two products, a search
    and a comparison of methods."""
    groups, detailed, topdown = (
        tomllib.loads(files[name].read_text())
        for name in ("group-sizes", "detailed-groups", "topdown")
    )
    public = {**groups["input"], "confidential": False}
    own = {"invariants": groups["invariants"], "mechanism": groups["mechanism"]}
    trees = {
        "products": {
            "privacy": detailed["privacy"],
            "products": {
                "group-sizes": {**own, "input": groups["input"], "privacy": {"epsilon": "1"}},
                "detailed-groups": {"input": detailed["input"]},
            },
        },
        "tune": {
            "input": public,
            "privacy": {"dataset": "public", "rho": "1"},
            "group-sizes": own,
            "variants": {"poor": {"privacy": {"rho": "1/10"}}, "rich": {}},
            "criterion": {"level": "county"},
            "search": {"method": "fixed", "replicates": 2},
        },
        "evidence": {
            "input": {**topdown["input"], "confidential": False},
            "privacy": {"dataset": "public"},
            "topdown": {"preset": "block_tables_2010"},
            "evidence": {"draws": 1, "attacks": ["averaging", "swap_detection"]},
            "methods": {
                "nothing": {"kind": "nothing"},
                "rounding": {"kind": "rounding", "bases": [5]},
                "private": {"kind": "differential_privacy", "rho": ["1"]},
            },
        },
    }
    made = {name: folder / f"{name}.toml" for name in trees}
    for name, tree in trees.items():
        made[name].write_text(tomli_w.dumps(tree), encoding="utf-8")
    return made


def of_measurements(folder: Path, topdown: Path) -> Path:
    """Settings of a release from the measurements of a run of others, which is made here as far."""
    settings = product("topdown").load(topdown, ["workload.units.on_demand=false"])
    run = prepare(settings, folder / "measured")
    call_stages(run, settings, before=" estimate ")
    assert (run.root / "measurements" / "units" / "Block" / "dpqueries").exists()
    made = folder / "estimate.toml"
    made.write_text(
        f'[input]\nmeasurements = "{run.root}/measurements"\n'
        f'geography = "{folder}/county/grfc.txt"\n',
        encoding="utf-8",
    )
    return made
