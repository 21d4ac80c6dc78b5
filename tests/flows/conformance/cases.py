"""Small private runs of every product and of declared censuses: their input, and what is known.

One run of each is made per session (`finished_run` of the fixtures). Tests damage copies of it, and
add files of their own products only for what is theirs alone.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.flows.household_input import write_detailed_households
from tests.recorded.runs import detailed_groups

ON_DEMAND = "".join(f"[workload.{name}]\non_demand = true\n" for name in ("persons", "units"))
GROUPS, COMMUTERS = 400, 3000
TRIPS_RHO = (math.sqrt(math.log(1e8) + 1) - math.sqrt(math.log(1e8))) ** 2
"""The zCDP that is epsilon 1 at delta 1e-8 by the simple conversion."""


@dataclass(frozen=True)
class Case:
    """A small private run, and what is true of it whatever its noise.

    product : as commands name it.
    write : fills a folder with input; returns the settings file, beside which the ledger will be.
    released : names in the release, beside the certificate.
    tables : tables of the input, as the manifest names them.
    charged : the loss of every draw, as the ledger has it.
    n_checks : of the independent checks.
    facts : what the certificate says of the run.
    holds : asserts what must be true of the release, given the folder of the input.
    budget : rho of the parts of the run, as `spineflow budget --json` tells it.
    judged : a file of counts that the checks compare with others, and `damaged` the column of them.
    """

    product: str
    write: Callable[[Path], Path]
    released: Collection[str]
    tables: Collection[str]
    charged: Sequence[str | float]
    n_checks: int
    facts: Collection[str]
    holds: Callable[[RunDirectory, Path], None]
    budget: Mapping[str, str] = field(default_factory=dict)
    judged: str = "estimates/*/*/*.parquet"
    damaged: str = "count"


def write_settings(folder: Path, text: str) -> Path:
    """A settings file in a folder."""
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def write_county(folder: Path, *, further: str = "") -> Path:
    """A county of the redistricting product."""
    generate_county(folder, persons=FEWEST_PERSONS, seed=1)
    return write_settings(
        folder,
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        f'geography = "grfc.txt"\n[privacy]\ndataset = "people"\nledger = "ledger.db"\n{further}',
    )


def write_persons(folder: Path) -> Path:
    """Persons of detailed groups in a state and in Puerto Rico."""
    return write_settings(folder, detailed_groups(folder))


def write_groups(folder: Path) -> Path:
    """Groups of up to eight, in four counties of two states."""
    dataset = census_like(groups=GROUPS, counties=4, states=2, largest=8)
    file = write_dataset(folder, dataset)
    return write_settings(folder, file.read_text().replace("confidential = false\n", ""))


def write_commuters(folder: Path) -> Path:
    """Trips between six municipalities."""
    size = CountrySize(regions=2, provinces=3, municipalities=6, pairs=20, commuters=COMMUTERS)
    file = generate_country(folder, size, seed=5)
    return write_settings(folder, file.read_text().replace("confidential = false\n", ""))


def write_people_in_households(folder: Path) -> Path:
    """A county whose households fit together."""
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=1)
    synthesize_households(folder / "raw", folder, seed=1)
    return write_settings(
        folder,
        'preset = "supplemental_dhc_2020_us"\n[input]\npersons = "persons.parquet"\n'
        'units = "units.parquet"\ngeography = "grfc.txt"\n[privacy]\ndataset = "people"\n',
    )


def write_declared(folder: Path, *, name: str) -> Path:
    """A census of the gallery, beside tables that it fits."""
    GALLERY[name](folder)
    return write_settings(folder, dict(zip(GALLERY, DECLARATIONS, strict=True))[name])


def holds_people(run: RunDirectory, source: Path) -> None:
    """The numbers of persons in the state, of housing units and of facilities are exact."""
    units = pd.read_parquet(source / "units.parquet")
    persons = pd.read_parquet(run.release / "mdf_persons.parquet")
    released = pd.read_parquet(run.release / "mdf_units.parquet")
    assert len(persons) == len(pd.read_parquet(source / "persons.parquet"))
    for kind in ("2", "4"):
        assert (released["RTYPE"] == kind).sum() == (units["RTYPE"].astype(str) == kind).sum()


def holds_detailed_groups(run: RunDirectory, source: Path) -> None:
    """Regions of both passes, down to tracts."""
    t1 = pd.read_csv(run.release / "t1.csv", sep="|", dtype=str)
    assert {"USA", "PR-STATE", "TRACT"} <= set(t1["REGION_TYPE"])


def holds_detailed_households(run: RunDirectory, source: Path) -> None:
    """Households of every group that has a total of persons, and of no other."""
    key = ["REGION_ID", "REGION_TYPE", "ITERATION_CODE"]
    t1 = pd.read_csv(source / "groups" / "release" / "t1.csv", sep="|", dtype=str)
    for name in ("t3", "t4"):
        rows = pd.read_csv(run.release / f"{name}.csv", sep="|", dtype=str)
        totals = rows[rows[f"{name.upper()}_DATA_CELL"] == "0"]
        assert set(totals[key].itertuples(index=False)) == set(t1[key].itertuples(index=False))
        assert len(totals) == len(t1)


def holds_group_sizes(run: RunDirectory, source: Path) -> None:
    """Counts add up from level to level, to the number of groups, which is public."""
    sizes = pd.read_parquet(run.release / "group_sizes.parquet")
    assert len(sizes) == (1 + 2 + 4) * 8 and sizes["count"].min() >= 0
    assert set(sizes.groupby("level")["count"].sum()) == {GROUPS}
    county = sizes[sizes["level"] == "county"]
    states = county.groupby([county["region"].str[:2], "size"])["count"].sum()
    state = sizes[sizes["level"] == "state"].set_index(["region", "size"])["count"]
    assert (states == state).all()


def holds_trips(run: RunDirectory, source: Path) -> None:
    """The number of trips is exact."""
    table = pd.read_csv(run.release / "trips.csv")
    assert list(table) == ["origin", "destination", "count"]
    assert table["count"].sum() == COMMUTERS


def holds_supplemental_dhc(run: RunDirectory, source: Path) -> None:
    """All tables of both levels, and no impossible value among them."""
    rows = pd.read_parquet(run.release / "supplemental_dhc.parquet")
    assert set(rows["table"]) == {f"PH{number}" for number in range(1, 9)}
    # Three tables of averages, and PH3, PH4 and PH7, in ten iterations; PH2 and PH6 in one.
    assert len(rows) == 2 * (10 * (3 * 3 + 10 + 3 + 4) + 13 + 21)
    assert rows["low"].min() >= 0 and not rows["estimate"].isna().any()
    sizes = rows[rows["table"].isin(["PH1", "PH8"]) & (rows["cell"] == 1)]
    assert sizes["low"].min() >= 1 and sizes["high"].max() <= 10


def holds_census(run: RunDirectory, source: Path) -> None:
    """Nothing was relaxed, every table has people, and a branch is told where there is one."""
    solves = pd.concat(map(pd.read_parquet, (run.root / "solves").rglob("*.parquet")))
    assert not solves["relaxed"].any()
    declared = tomllib.loads((source / "settings.toml").read_text(encoding="utf-8"))["census"]
    assert len(declared["tables"]) >= 2
    for table in declared["tables"]:
        counts = pd.read_parquet(run.release / "tables" / f"{table['name']}.parquet")["count"]
        assert counts.sum() > 0
    has_branch = "branch" in declared["geography"]
    assert ("on the branch" in run.report.read_text(encoding="utf-8")) is has_branch


def holds_homes(run: RunDirectory, source: Path) -> None:
    """In every section there is a householder of the sex for every home that has one, and nobody
    is at home who does not fit in."""
    holds_census(run, source)
    homes, people = (
        pd.read_parquet(run.release / f"mdf_{name}.parquet").astype(str)
        for name in ("homes", "people")
    )
    section = ["parish", "section"]
    occupied = homes[homes["householder"] != "nobody"]
    heads = people[people["lives"] == "as householder"]
    told = occupied.groupby([*section, "householder"]).size()
    assert told.to_dict() == heads.groupby([*section, "sex"]).size().to_dict()
    at_home = people[people["lives"] != "in an institution"].groupby(section).size()
    for number, limit in (({"4 or more": 4}, at_home.ge), ({"4 or more": 12}, at_home.le)):
        sizes = homes["residents"].replace({"nobody": 0, **number}).astype(int)
        room = sizes.groupby([homes[name] for name in section]).sum()
        assert limit(room.reindex(at_home.index)).all()
    assert len(homes) == len(pd.read_csv(source / "homes.csv"))


def microdata(*universes: str, tables: bool = True) -> tuple[str, ...]:
    """Names of what topdown releases of some universes."""
    files = [f"mdf_{name}.{suffix}" for name in universes for suffix in ("csv", "parquet")]
    return (*files, "tables") if tables else tuple(files)


COUNTY = Case(
    product="topdown",
    write=write_county,
    released=(*microdata("persons", "units"), "pl94171"),
    tables=("persons", "units"),
    charged=("293764/114921", "11417641/152349649"),
    n_checks=26,
    facts=("293764/114921", "17.14", "11417641/152349649", "housing units", "nurse_nva_0"),
    holds=holds_people,
    budget={"persons": "293764/114921", "units": "11417641/152349649"},
)

CASES: dict[str, Case] = {
    "topdown": COUNTY,
    "on demand": Case(
        product="topdown",
        # Tables of people are those of the case before, and half of a run.
        write=partial(write_county, further=f"{ON_DEMAND}[release]\ntables = false\n"),
        released=microdata("persons", "units", tables=False),
        tables=COUNTY.tables,
        charged=COUNTY.charged,
        n_checks=23,
        facts=("293764/114921", "only those were drawn that could still matter"),
        holds=holds_people,
        budget=COUNTY.budget,
    ),
    "detailed groups": Case(
        product="detailed-groups",
        write=write_persons,
        released=("t1.csv", "t2.csv", "population_groups.parquet"),
        tables=("persons", "parameters"),
        # Levels 1 and 2 of six region types at 1/4 and 1/2, without level 1 of AIANNH areas.
        charged=("17/4",),
        n_checks=10,
        facts=("17/4",),
        holds=holds_detailed_groups,
        budget={"us": "17/2", "pr": "6"},
        judged="release-unchecked/population_groups.parquet",
    ),
    "detailed households": Case(
        product="detailed-households",
        write=write_detailed_households,
        released=("t3.csv", "t4.csv", "detailed_households.parquet"),
        tables=("persons", "parameters"),
        # The same levels, by type of household and by tenure.
        charged=("17/4", "17/4"),
        n_checks=10,
        facts=("17/4", "17/2"),
        holds=holds_detailed_households,
        budget={"us": "17"},
        judged="release-unchecked/detailed_households.parquet",
    ),
    "group sizes": Case(
        product="group-sizes",
        write=write_groups,
        released=[f"group_{n}.{s}" for n in ("sizes", "totals") for s in ("csv", "parquet")],
        tables=("groups",),
        charged=("1",),
        n_checks=4,
        facts=("epsilon 1",),
        holds=holds_group_sizes,
        budget={"groups": "2"},
        judged="release-unchecked/group_sizes.parquet",
    ),
    "trips": Case(
        product="trips",
        write=write_commuters,
        released=[f"{n}.{s}" for n in ("trips", "range_queries") for s in ("csv", "parquet")],
        tables=("trips",),
        charged=(TRIPS_RHO,),
        n_checks=8,
        facts=("1e-8",),
        holds=holds_trips,
    ),
    "supplemental dhc": Case(
        product="supplemental-dhc",
        write=write_people_in_households,
        released=("supplemental_dhc.csv", "supplemental_dhc.parquet"),
        tables=("persons", "units"),
        charged=("1257281/1000000",),
        n_checks=4,
        facts=("1257281/1000000", "2 tau + 2"),
        holds=holds_supplemental_dhc,
        budget={"people_in_households": "1257281/250000"},
        judged="release-unchecked/supplemental_dhc.parquet",
        damaged="noisy",
    ),
    "register": Case(
        product="topdown",
        write=partial(write_declared, name="register"),
        released=microdata("dwellings", "persons"),
        tables=("dwellings", "persons"),
        charged=("1/10", "1"),
        n_checks=25,
        facts=("dwellings", "persons"),
        holds=holds_census,
    ),
    "homes": Case(
        product="topdown",
        write=partial(write_declared, name="homes"),
        released=microdata("homes", "people"),
        tables=("homes", "people"),
        charged=("1/2", "1"),
        n_checks=26,
        facts=("homes", "people"),
        holds=holds_homes,
    ),
    "schools": Case(
        product="topdown",
        write=partial(write_declared, name="schools"),
        released=microdata("pupils"),
        tables=("pupils",),
        charged=("2",),
        n_checks=14,
        facts=("pupils",),
        holds=holds_census,
    ),
}
PRODUCTS = tuple(name for name in CASES if CASES[name].product.replace("-", " ") == name)
"""A case of every product."""


@dataclass(frozen=True)
class Finished:
    """A finished run of a case, its input, settings and ledger; not to be changed."""

    case: Case
    folder: Path

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.folder / "settings.toml"

    @property
    def ledger(self) -> Path:
        """The ledger that the run was charged to."""
        return self.folder / "ledger.db"

    @property
    def run(self) -> RunDirectory:
        """Its directory."""
        return RunDirectory(self.folder / "run")


def contents(folder: Path, but: str = "") -> dict[str, bytes]:
    """The files below a folder by name, without those of a stem."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stem != but
    }


def measurements(run: RunDirectory) -> dict[str, tuple[int, bytes]]:
    """What a run has published of its measurements, with the times of their last change."""
    return {
        path.relative_to(run.root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("*")
        if path.is_file() and "constraints" not in path.parts
    }


def checks_of(run: RunDirectory) -> list[dict]:
    """What the independent checks found."""
    found = json.loads((run.checks / "checks.json").read_text(encoding="utf-8"))
    assert found["passed"] == all(check["passed"] for check in found["checks"])
    return found["checks"]
