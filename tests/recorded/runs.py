"""Small seeded runs of every product and preset, and what of them is recorded."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.demo import DEMOS
from spineflow.flows.registry import DECIDED_ON_THE_WAY
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_persons,
    generate_specification,
    give_detailed_codes,
)
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes import plan as of_groups
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import LEDGER
from spineflow.tasks.topdown.ingest.generate import (
    FEWEST_PERSONS,
    generate_country,
    generate_county,
)
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.trips import settings as of_trips
from spineflow.tasks.trips.ingest.generate import CountrySize
from spineflow.tasks.trips.ingest.generate import generate_country as generate_trips

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.flows.in_process import stages_in_process, stop_after, tasks_in_threads, uncompared
from tests.recorded.content import digest_of_json, digest_of_ledger, digests_of_run

SEEDED = ("input.confidential=false", "privacy.seed=7")
PUBLIC = ("input.confidential=false",)
PUBLISHED = (*SEEDED, "release.publish_to=published")
SETTINGS = "settings.toml"

PRIVACY = '[privacy]\ndataset = "people"\n'
COUNTY = (
    '[input]\npersons = "persons.parquet"\nunits = "units.parquet"\ngeography = "grfc.txt"\n'
    + PRIVACY
)
SPECIFICATION = {"regional": 2, "detailed": 3, "ethnicities": 1}
PUERTO_RICO = "72"
TRIPS = CountrySize(regions=2, provinces=3, municipalities=6, pairs=20, commuters=3000)


@dataclass(frozen=True)
class Run:
    """A small run.

    product : as commands name it.
    write : fills a folder with input; returns the text of the settings file there.
    overrides : settings besides those of the file.
    is_charged : whether a private run of the same settings is charged to a ledger as well.
    """

    product: str
    write: Callable[[Path], str]
    overrides: Sequence[str] = SEEDED
    is_charged: bool = True


def county(
    folder: Path,
    *,
    preset: str,
    state: str = "35",
    tables: str = "false",
    further: str = "margins = false\n",
) -> str:
    """The smallest county; tables and margins, most of a run, are those of other runs."""
    generate_county(folder, persons=FEWEST_PERSONS, seed=1, state=state)
    return f'preset = "{preset}"\n{COUNTY}[release]\ntables = {tables}\n{further}'


def housed_county(folder: Path, *, preset: str = "", state: str = "44") -> str:
    """The smallest county in households that fit together."""
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=1, state=state)
    synthesize_households(folder / "raw", folder, seed=1)
    return f'preset = "{preset}"\n{COUNTY}'


def population(folder: Path, *, nation: str, state: str) -> str:
    """Three products of such a county, whose settings are those of the demonstration."""
    (folder / "input").mkdir()
    housed_county(folder / "input", state=state)
    text = (DEMOS / "households.toml").read_text(encoding="utf-8").replace("_us", f"_{nation}")
    text = text.replace("{ margins = false }", "{ margins = false, tables = false }")
    for own in ("dhc-units", "dhc-persons"):
        table = f"[products.{own}]\n"
        text = text.replace(table, f"{table}release = {{ tables = false }}\n")
    return text


def evidence(folder: Path, *, preset: str) -> str:
    """Methods beside one another on such a county."""
    housed_county(folder)
    return (
        '[input]\npersons = "persons.parquet"\nunits = "units.parquet"\ngeography = "grfc.txt"\n'
        f'[privacy]\ndataset = "people"\n[topdown]\npreset = "{preset}"\n'
        '[evidence]\ndraws = 1\nattacks = ["averaging", "swap_detection"]\n'
        '[methods.nothing]\nkind = "nothing"\n'
        '[methods.rounding]\nkind = "rounding"\nbases = [5]\n'
        '[methods.swapping]\nkind = "swapping"\nrates = ["1/10"]\n'
        '[methods.private]\nkind = "differential_privacy"\nrho = ["1"]\n'
    )


def estimate(folder: Path, *, estimator: str) -> str:
    """The measurements of a seeded run of the county."""
    file = write_settings(folder / "measured", partial(county, preset="pl94_2020_us"))
    command("run", "topdown", str(file), "--run-dir", str(file.parent / "run"), overrides=SEEDED)
    return (
        '[input]\nmeasurements = "measured/run/measurements"\ngeography = "measured/grfc.txt"\n'
        f'[run]\nestimator = "{estimator}"\n[release]\nmargins = false\ntables = false\n'
    )


def detailed_groups(folder: Path) -> str:
    """Persons of a state and of Puerto Rico."""
    states = ("44", "72")
    generate_specification(folder / "params", states=states, run_pr=True, **SPECIFICATION)
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=800, tracts=4, states=states, seed=2)
    return (
        f'[input]\nparameters = "params"\ndata = "data"\n{PRIVACY}[mechanism]\ncoterminous = true\n'
    )


def detailed_households(folder: Path, *, preset: str, states: tuple[str, ...]) -> str:
    """Households of the groups of a county, which a seeded run has released."""
    housed_county(folder, state=states[-1])
    generate_specification(
        folder / "params",
        states=states,
        run_pr=PUERTO_RICO in states,
        households=True,
        **SPECIFICATION,
    )
    if states[-1] == PUERTO_RICO:
        config = folder / "params" / "config.json"
        facts = json.loads(config.read_text(encoding="utf-8"))
        config.write_text(json.dumps({**facts, "run_us": False}), encoding="utf-8")
    codes = list(read_specification(str(folder / "params")).names)
    give_detailed_codes(folder / "persons.parquet", codes)
    tables = COUNTY.replace("[input]\n", '[input]\nparameters = "params"\n')
    file = folder / "groups.toml"
    file.write_text(tables, encoding="utf-8")
    command(
        "run", "detailed-groups", str(file), "--run-dir", str(folder / "groups"), overrides=SEEDED
    )
    return f'preset = "{preset}"\n' + tables.replace("[input]\n", '[input]\ngroups = "groups"\n')


def group_sizes(folder: Path, *, loss: str) -> str:
    """Groups of up to eight, in four counties of two states."""
    write_dataset(folder, census_like(groups=400, counties=4, states=2, largest=8))
    return (
        '[input]\nsizes = "sizes.parquet"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
        f"[mechanism]\nlargest_size = 8\n{PRIVACY}{loss}\n"
    )


def group_sizes_of_county(folder: Path) -> str:
    """Units of the county by the persons in them."""
    generate_county(folder, persons=FEWEST_PERSONS, seed=1)
    return f'{COUNTY}epsilon = "1"\n[mechanism]\nlargest_size = 8\n'


def trips(folder: Path) -> str:
    """Trips between six municipalities."""
    generate_trips(folder, TRIPS, seed=5)
    return (
        '[input]\ntrips = "trips.parquet"\norigin = "origin"\ndestination = "destination"\n'
        f'count = "commuters"\nareas = "areas.csv"\n{PRIVACY}epsilon = "1"\ndelta = "1e-8"\n'
    )


def declared(folder: Path, *, name: str) -> str:
    """A census of the gallery."""
    GALLERY[name](folder)
    return dict(zip(GALLERY, DECLARATIONS, strict=True))[name]


def country(folder: Path) -> str:
    """The country of the demonstration, smaller."""
    (folder / "input").mkdir()
    generate_country(folder / "input", seed=1)
    return (DEMOS / "country.toml").read_text(encoding="utf-8")


def topdown(preset: str = "pl94_2020_us", **options: str) -> Run:
    """A run of the county by a preset."""
    return Run("topdown", partial(county, preset=preset, **options))


ON_DEMAND = "".join(f"[workload.{name}]\non_demand = true\n" for name in ("persons", "units"))
FULL, BY_BLOCK = (
    f'margins = false\n[run]\nestimator = "{name}"\n'
    for name in ("full_information", "block_by_block")
)

POPULATION = "one population us"
"""The run of three products that other tests look at, too."""

RUNS: dict[str, Run] = {
    "pl94_2020_us": topdown(tables="true"),
    "pl94_2020_pr": topdown("pl94_2020_pr", state="72"),
    "pl94_april_2021_us": topdown("pl94_april_2021_us"),
    "pl94_april_2021_us_lower": topdown("pl94_april_2021_us_lower"),
    "full information": topdown(further=FULL),
    "block by block": topdown(further=BY_BLOCK),
    "on demand": topdown(further=ON_DEMAND),
    "dhc_equal": topdown("dhc_equal"),
    "block_tables_2010": topdown("block_tables_2010"),
    "block_tables_2010_detailed": topdown("block_tables_2010_detailed"),
    POPULATION: Run("products", partial(population, nation="us", state="44"), PUBLISHED, False),
    "one population pr": Run(
        "products", partial(population, nation="pr", state="72"), is_charged=False
    ),
    "estimate": Run("estimate", partial(estimate, estimator="topdown"), ()),
    "estimate full information": Run(
        "estimate", partial(estimate, estimator="full_information"), ()
    ),
    "evidence": Run("evidence", partial(evidence, preset="block_tables_2010"), PUBLIC),
    "detailed groups": Run("detailed-groups", detailed_groups),
    "detailed_households_2020_us": Run(
        "detailed-households",
        partial(detailed_households, preset="detailed_households_2020_us", states=("44",)),
        is_charged=False,
    ),
    "detailed_households_2020_pr": Run(
        "detailed-households",
        partial(detailed_households, preset="detailed_households_2020_pr", states=("44", "72")),
        is_charged=False,
    ),
    "supplemental_dhc_2020_us": Run(
        "supplemental-dhc", partial(housed_county, preset="supplemental_dhc_2020_us")
    ),
    "supplemental_dhc_2020_pr": Run(
        "supplemental-dhc", partial(housed_county, preset="supplemental_dhc_2020_pr", state="72")
    ),
    "group sizes of units": Run("group-sizes", group_sizes_of_county),
    **{
        f"group sizes {name} {loss.split()[0]}": Run(
            "group-sizes",
            partial(group_sizes, loss=loss),
            (*SEEDED, f"mechanism.name={name}"),
        )
        for name in of_groups.VECTOR_OF
        for loss in ('epsilon = "1"', 'rho = "1"')
    },
    **{
        f"trips {name}": Run("trips", trips, (*SEEDED, f"mechanism.name={name}"))
        for name in (*of_trips.TOP_DOWN, of_trips.GAUSSIAN_LEAVES, of_trips.STABILITY_HISTOGRAM)
    },
    **{name: Run("topdown", partial(declared, name=name)) for name in GALLERY},
    "country": Run("topdown", country),
}
"""The runs by name."""


def write_settings(folder: Path, write: Callable[[Path], str]) -> Path:
    """The settings file of a run in a new folder with its input."""
    folder.mkdir()
    file = folder / SETTINGS
    file.write_text(write(folder), encoding="utf-8")
    return file


def command(*arguments: str, overrides: Sequence[str] = ()) -> str:
    """Output of a command that must succeed."""
    shown = io.StringIO()
    settings = [word for one in overrides for word in ("--set", one)]
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = main([*arguments, *settings])
    assert code == 0, shown.getvalue()
    return shown.getvalue()


@contextlib.contextmanager
def surroundings(run: Run) -> Iterator[None]:
    """Commands of a run are called in this process, and nothing is worked out twice."""
    # Only flows that decide on the way need threads for their tasks.
    is_flow = run.product in DECIDED_ON_THE_WAY
    tasks = tasks_in_threads() if is_flow else stages_in_process(judged_twice=False)
    with tasks, uncompared(), pytest.MonkeyPatch.context() as patched:
        # The budget has these figures, too.
        patched.setattr("spineflow.tasks.topdown.release.report.exact_epsilons", lambda *_: {})
        yield


def make(run: Run, folder: Path) -> None:
    """Make a run in a folder, and its input."""
    with surroundings(run):
        file = write_settings(folder / "input", run.write)
        root = folder / "run"
        command("run", run.product, str(file), "--run-dir", str(root), overrides=run.overrides)


def digests(run: Run, folder: Path) -> dict[str, str]:
    """Digests of a run that was made in a folder: of its files, its charge and its budget."""
    found = digests_of_run(folder / "run")
    if SEEDED[1] not in run.overrides:
        return found
    file = folder / "input" / SETTINGS
    public = [one for one in run.overrides if one != SEEDED[1]]
    with surroundings(run):
        budget = command("budget", run.product, str(file), "--json", overrides=public)
        found["budget"] = digest_of_json(json.loads(budget))
        if run.is_charged:
            found["ledger"] = digest_of_ledger(charged(run, file, public))
    return found


def charged(run: Run, file: Path, overrides: Sequence[str]) -> Path:
    """The ledger of a private run of the same settings, which has drawn nothing yet."""
    asked = product(run.product)
    settings = asked.load(file, overrides)
    started = prepare(settings, file.parent / "charged")
    call_stages(started, settings, ended=stop_after(LEDGER))
    return Path(settings.privacy.ledger)
