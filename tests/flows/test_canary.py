"""No value of the confidential input reaches Prefect or the console, whatever fails.

Recognisable values are planted in the input: some that break its rules, some that do not. Then
every step fails once with an error that quotes them, as errors of libraries quote data. Neither
the server's database and files, nor the console, nor the public part of the run may hold them.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.products.product import OF_ONE_INPUT
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.census_inputs import generate_texts
from tests.flows.household_input import write_detailed_households

pytestmark = pytest.mark.slow

BROKEN = {"QAGE": "canaryage", "CENRACE": "canaryrace", "OIDTB": "canaryblock"}
"""Values that the rules on the input refuse, by column."""

MAFID = "986420975"
"""Identifier of a unit, and of a person of 115 years and all six races who lives there."""

QUOTED = f"row {{'MAFID': {MAFID}, 'QAGE': 'canary115', 'CENRACE': 'canary63', 'n': 73197319}}"
"""What the forced errors say."""

PUBLISHED = '[release]\npublish_to = "published"\n'

CANARIES = (*BROKEN.values(), MAFID, "canary115", "canary63", "73197319", "73,197,319")

FAILING_ONCE = """
import importlib, json, sys, traceback
import prefect
from spineflow.flows import running, stages, topdown
from spineflow.flows.cli import main
from spineflow.tasks.runs import steps as frame
from spineflow.tasks.topdown.checks import pieces
from spineflow.tasks.topdown.ingest import steps
from spineflow.tasks.topdown.spine import files

name, sound, broken, root, quoted = sys.argv[1:]
own = importlib.import_module(f"spineflow.flows.{name.replace('-', '_')}")
modules = [stages, own]
run = ("run", name, sound, "--run-dir", root)
named = [value for module in modules for value in vars(module).values()]
named += [step for table in named if isinstance(table, dict) for step in table.values()]
named += [running.copy_checked_release]
unfailed = {task.fn.__wrapped__ for task in named if isinstance(task, prefect.Task)}
outcomes = dict.fromkeys((step.__name__ for step in unfailed), "not called")
original, show_outcome, future_of = frame.load_run, running.show_outcome, stages.Stages._future_of

class Failing(str):
    pass

def ended(*arguments):
    try:
        return main([*arguments, "--debug"])
    except Exception:
        traceback.print_exc()
        return "raised"

def load_run(root, model):
    if isinstance(root, Failing):
        raise ValueError(quoted)
    return original(root, model)

def failed_before(self, stage, task, parameters, before):
    step = task.fn.__wrapped__
    if step in unfailed:
        unfailed.discard(step)
        root, *keys = parameters.items()
        failing = dict([(root[0], Failing(root[1])), *keys])
        error = self._runner.submit(task, failing, []).result(raise_on_failure=False)
        outcomes[step.__name__] = "raised" if isinstance(error, Exception) else "succeeded"
        print(error, file=sys.stderr)
    return future_of(self, stage, task, parameters, before)

def failing_flow(*arguments):
    raise ValueError(quoted)

outcomes["input"] = ended("run", name, broken, "--run-dir", f"{root}-broken")
# As of a nation: input read, and results checked and compared, in pieces.
pieces.BLOCKS_PER_PIECE, pieces.MOST_PIECES, files.BLOCKS_PER_TASK = 16, 2, 16
steps.AREAS_PER_SHARE, steps.MOST_SHARES = 1, 2
topdown.universes_in_pieces = lambda run, settings: dict.fromkeys(settings.run.universes, 1)
frame.load_run, running.show_outcome = load_run, failing_flow
stages.Stages._future_of = failed_before
outcomes["flow"] = ended(*run)
running.show_outcome = show_outcome
outcomes["nothing"] = ended(*run)
print(json.dumps(outcomes))
"""
"""Runs a product, with every step failing once before it does its work, and the flow itself in the
end; then goes on with that run."""


def write_census(folder: Path, *, is_broken: bool) -> Path:
    """Census tables with the planted values, and settings of topdown."""
    folder.mkdir()
    files = generate_texts(folder, "delimited", persons=900, seed=5)
    tables = {
        name: pd.read_csv(path, sep="|", dtype=str, keep_default_na=False)
        for name, path in (("persons", files.persons), ("units", files.units))
    }
    persons, units = tables["persons"], tables["units"]
    lived_in = persons.index[persons["QGQTYP"].str.strip() == ""][7]
    units.loc[units["MAFID"] == persons.loc[lived_in, "MAFID"], "MAFID"] = MAFID
    persons.loc[persons["MAFID"] == persons.loc[lived_in, "MAFID"], "MAFID"] = MAFID
    persons.loc[lived_in, ["QAGE", "CENRACE"]] = ["115", "63"]
    if is_broken:
        persons.loc[lived_in, ["QAGE", "CENRACE"]] = [BROKEN["QAGE"], BROKEN["CENRACE"]]
        units.loc[3, "OIDTB"] = BROKEN["OIDTB"]
    # In two files, which are counted by tasks of their own.
    files.persons.unlink()
    files.persons.mkdir()
    for number, part in enumerate((persons[:400], persons[400:])):
        name = f"{number}{files.persons.suffix}"
        part.to_csv(files.persons / name, sep="|", index=False)
    units.to_csv(files.units, sep="|", index=False)
    settings = folder / "settings.toml"
    settings.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{files.persons}"\n'
        f'units = "{files.units}"\ngeography = "{files.geography}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n' + PUBLISHED
    )
    return settings


def write_groups(folder: Path, *, is_broken: bool) -> Path:
    """Persons of detailed groups, one of them with planted values, and settings."""
    generate_specification(folder / "params", states=["44"])
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=300, tracts=2, states=["44"], seed=2)
    if is_broken:
        replace_field(folder / "data" / "person-records.txt", "QAGE", BROKEN["QAGE"])
    settings = folder / "settings.toml"
    settings.write_text(
        '[input]\nparameters = "params"\ndata = "data"\n[mechanism]\ncoterminous = true\n'
        '[privacy]\ndataset = "groups"\n' + PUBLISHED
    )
    return settings


def write_householders(folder: Path, *, is_broken: bool) -> Path:
    """Householders of detailed groups, one of them with planted values, and settings."""
    settings = write_detailed_households(folder)
    plant_in_household(folder, is_broken=is_broken)
    settings.write_text(settings.read_text() + PUBLISHED)
    return settings


def write_people_in_households(folder: Path, *, is_broken: bool) -> Path:
    """A county whose households fit together, one of them with planted values, and settings."""
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=1)
    synthesize_households(folder / "raw", folder, seed=1)
    plant_in_household(folder, is_broken=is_broken)
    settings = folder / "settings.toml"
    settings.write_text(
        'preset = "supplemental_dhc_2020_us"\n[input]\npersons = "persons.parquet"\n'
        'units = "units.parquet"\ngeography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
        + PUBLISHED
    )
    return settings


def plant_in_household(folder: Path, *, is_broken: bool) -> None:
    """Put the planted values into one household of a folder's tables."""
    tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("persons", "units")}
    persons = tables["persons"]
    known = persons.loc[persons["RELSHIP"].astype(int) == 20, "MAFID"].iloc[5]
    for name, table in tables.items():
        table.loc[table["MAFID"] == known, "MAFID"] = type(known)(MAFID)
        if name == "persons" and is_broken:
            table["QAGE"] = table["QAGE"].astype(str)
            table.loc[5, "QAGE"] = BROKEN["QAGE"]
        table.to_parquet(folder / f"{name}.parquet")


def write_sizes(folder: Path, *, is_broken: bool) -> Path:
    """A table of group sizes, one row of it with planted values, and settings."""
    dataset = census_like(groups=2000, counties=6, states=2, largest=20)
    return confidential(
        write_dataset(folder, dataset),
        lambda sizes: sizes.assign(
            region=[BROKEN["OIDTB"], *sizes["region"][1:]], size=[73197319, *sizes["size"][1:]]
        ),
        is_broken,
    )


def write_trips(folder: Path, *, is_broken: bool) -> Path:
    """A table of trips, one row of it with planted values, and settings."""
    country = CountrySize(regions=2, provinces=4, municipalities=12, pairs=60, commuters=5000)
    return confidential(
        generate_country(folder, country, seed=4),
        lambda trips: trips.assign(
            origin=[BROKEN["OIDTB"], *trips["origin"][1:]],
            commuters=[-73197319, *trips["commuters"][1:]],
        ),
        is_broken,
    )


def confidential(
    settings: Path, plant: Callable[[pd.DataFrame], pd.DataFrame], is_broken: bool
) -> Path:
    """Generated settings for confidential input, whose only table is broken if asked."""
    text = settings.read_text().replace("confidential = false\n", "")
    settings.write_text(f"{text}\n{PUBLISHED}")
    if is_broken:
        (table,) = settings.parent.glob("*.parquet")
        plant(pd.read_parquet(table)).to_parquet(table)
    return settings


def replace_field(file: Path, column: str, value: str) -> None:
    """Put a value into a column of a delimited file's sixth record."""
    lines = file.read_text().splitlines()
    fields = lines[6].split("|")
    fields[lines[0].split("|").index(column)] = value
    lines[6] = "|".join(fields)
    file.write_text("\n".join(lines) + "\n")


def canaries_in(content: bytes) -> list[str]:
    """The planted values in a content, or in what Prefect has pickled and encoded into it."""
    encoded = re.findall(rb"gA[SW][A-Za-z0-9+/\\\s]{40,}", content)
    packed = [re.sub(rb"\\n|\\|\s", b"", text) for text in encoded]
    decoded = [base64.b64decode(text[: len(text) // 4 * 4]) for text in packed]
    return [canary for canary in CANARIES if canary.encode() in b"".join([content, *decoded])]


def leaks_below(folder: Path) -> dict[str, list[str]]:
    found = {
        path.relative_to(folder).as_posix(): canaries_in(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and "confidential" not in path.parts
    }
    return {name: canaries for name, canaries in found.items() if canaries}


def texts_of(database: Path) -> str:
    """Every value of every row of the server's database."""
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return "\n".join(
            repr(row)
            for (table,) in tables.fetchall()
            for row in connection.execute(f'SELECT * FROM "{table}"')
        )


ALWAYS = ("topdown",)
"""Products that are tried in every run of the tests."""

INPUTS = {
    "topdown": (
        write_census,
        {"combine", "write_formats", "write_microdata_part", "write_table_piece"},
    ),
    "detailed-groups": (write_groups, set()),
    "detailed-households": (write_householders, set()),
    "group-sizes": (write_sizes, set()),
    "trips": (write_trips, {"combine"}),
    "supplemental-dhc": (write_people_in_households, set()),
}
"""What writes the input of each product, and the steps that it does not need."""


def test_a_pickled_value_would_be_found() -> None:
    pickled = base64.encodebytes(pickle.dumps(ValueError(QUOTED)))
    assert canaries_in(b"before " + pickled) == [MAFID, "canary115", "canary63", "73197319"]
    in_a_row = repr((1, pickled.decode())).encode()
    assert canaries_in(in_a_row) == [MAFID, "canary115", "canary63", "73197319"]


def test_every_product_of_confidential_input_is_tried() -> None:
    assert {*INPUTS, "estimate"} == {*OF_ONE_INPUT}, "estimate reads what is published"


@pytest.mark.parametrize(
    "product",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.soak(25)) for name in INPUTS],
)
def test_no_planted_value_is_found(spineflow, real_server, tmp_path: Path, product: str) -> None:
    """Threat model: confidential values in server, logs, pages or notebooks."""
    write_input, unused = INPUTS[product]
    sound = write_input(tmp_path / "sound", is_broken=False)
    broken = write_input(tmp_path / "broken", is_broken=True)
    root = tmp_path / "run"
    command = spineflow(
        *(product, str(sound), str(broken), str(root), QUOTED),
        program=FAILING_ONCE,
        folder=tmp_path,
        **real_server.environment,
    )
    code, output, errors = command.ended()
    assert code == 0, errors
    outcomes = json.loads(output.splitlines()[-1])
    assert {name for name, ended in outcomes.items() if ended != "raised"} == {"nothing"} | unused
    assert outcomes["nothing"] == 0

    steps = set(outcomes) - unused - {"input", "flow", "nothing"}
    assert errors.count("failed with ValueError") >= len(steps)
    kept = [path.read_text() for path in (root / "confidential" / "errors").iterdir()]
    assert sum(QUOTED in text for text in kept) > len(steps)
    assert leaks_below(tmp_path / "broken")

    assert canaries_in(output.encode()) == []
    assert canaries_in(errors.encode()) == []
    assert leaks_below(root) == {}
    assert leaks_below(tmp_path / "run-broken") == {}
    assert leaks_below(tmp_path / "sound" / "published") == {}
    assert leaks_below(real_server.folder) == {}
    rows = texts_of(real_server.database)
    assert "Interrupted" in rows
    assert "failed with ValueError" in rows
    assert canaries_in(rows.encode()) == []
