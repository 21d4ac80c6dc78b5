"""Settings of small private runs of every product, all of the same people, and their input."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.schedules import PEOPLE

SMALL_COUNTRY = CountrySize(regions=2, provinces=3, municipalities=6, pairs=20, commuters=3000)


def settings_files(folder: Path) -> dict[str, Path]:
    """Settings of a small private run of each product, all of the same people; of topdown, units
    are measured on demand. The ledger is `world/ledger.db`."""
    privacy = f'[privacy]\ndataset = "{PEOPLE}"\nledger = "{folder}/world/ledger.db"\n'
    county = folder / "county"
    generate_county(county, persons=FEWEST_PERSONS, seed=1)
    generate_specification(folder / "params", regional=2, detailed=3, ethnicities=1)
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "persons", codes, persons=400, tracts=2)
    write_dataset(folder / "groups", census_like(groups=400, counties=4, states=2, largest=8))
    generate_country(folder / "country", SMALL_COUNTRY, seed=5)
    texts = {
        "topdown": f'preset = "pl94_2020_us"\n[input]\npersons = "{county}/persons.parquet"\n'
        f'units = "{county}/units.parquet"\ngeography = "{county}/grfc.txt"\n{privacy}'
        "[workload.units]\non_demand = true\n",
        "detailed-groups": f'[input]\nparameters = "{folder}/params"\ndata = "{folder}/persons"\n'
        f"{privacy}",
        "group-sizes": f'[input]\nsizes = "{folder}/groups/sizes.parquet"\n'
        f'regions = "{folder}/groups/regions.csv"\n[invariants]\ngroups = true\n'
        f'[mechanism]\nlargest_size = 8\n{privacy}epsilon = "1"\n',
        "trips": f'[input]\ntrips = "{folder}/country/trips.parquet"\norigin = "origin"\n'
        f'destination = "destination"\ncount = "commuters"\nareas = "{folder}/country/areas.csv"\n'
        f'{privacy}epsilon = "1"\ndelta = "1e-8"\n',
    }
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name}.toml"
        files[name].write_text(text, encoding="utf-8")
    return files
