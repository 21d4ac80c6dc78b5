"""Households by detailed group: without noise the rows of a plain join, with the groups, and in the
tables, that a finished run has chosen.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main

from tests.flows.household_input import TABLES, run_in_process, write_households

CATEGORIES = {
    "t3": {
        0: {1, 2, 3, 4, 5},
        1: {1, 2, 3},
        2: {1},
        3: {2, 3},
        4: {2},
        5: {3},
        6: {4, 5},
        7: {4},
        8: {5},
    },
    "t4": {0: {1, 2, 3, 4}, 1: {1}, 2: {2}, 3: {3, 4}},
}
SHOWN = {
    "t3": [[0], [0, 1, 6], [0, 1, 2, 3, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]],
    "t4": [[0], [0, 1, 2, 3]],
}
KEY = ["REGION_ID", "REGION_TYPE", "ITERATION_CODE"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A county with a finished run of its groups and one of households, the latter without noise;
    some groups are suppressed.
    """
    folder = tmp_path_factory.mktemp("households")
    write_households(folder, persons=4000)
    tables = TABLES.replace('"params"\n', '"params"\nconfidential = false\n')
    own = f'{tables}[privacy]\ndataset = "people"\nseed = 3\n'
    (folder / "groups.toml").write_text(own)
    run_in_process(
        "run", "detailed-groups", str(folder / "groups.toml"), "--run-dir", str(folder / "groups")
    )
    own = f'{tables}groups = "groups"\n[privacy]\ndataset = "people"\ninfinite = true\n'
    (folder / "settings.toml").write_text(own)
    command = ("run", "detailed-households", str(folder / "settings.toml"))
    run_in_process(*command, "--run-dir", str(folder / "run"))
    return folder


def iterations_of(specification: Path, races: set[str], ethnicity: str) -> dict[str, list[str]]:
    """Codes of a householder's iterations by level, read from the rows of the specification."""
    pairs = pd.read_csv(
        specification / "race-and-ethnicity-code-to-iteration.txt", sep="|", dtype=str
    )
    codes = pairs.groupby("ITERATION_CODE")["RACE_ETH_CODE"].agg(set)
    found: dict[str, list[str]] = {}
    for name in ("race", "ethnicity"):
        file = specification / f"{name}-characteristic-iterations.txt"
        for row in pd.read_csv(file, sep="|", dtype=str).itertuples():
            own = codes[row.ITERATION_CODE]
            if name == "ethnicity":
                is_in = ethnicity in own
            elif row.ALONE == "True":
                is_in = races <= own
            else:
                is_in = bool(races & own)
            if is_in and row.LEVEL != "0":
                found.setdefault(row.LEVEL, []).append(row.ITERATION_CODE)
    return found


def plain_households(folder: Path) -> pd.DataFrame:
    """A row per household and group: region type, region, iteration, type and tenure."""
    persons = pd.read_parquet(folder / "persons.parquet").astype(str)
    units = pd.read_parquet(folder / "units.parquet").astype(str)
    blocks = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str)
    heads = persons[persons["RELSHIP"].str.strip() == "20"]
    rows = heads.merge(units, on="MAFID", suffixes=("", "_of_unit"))
    rows = rows.merge(blocks, left_on="OIDTB", right_on="OIDTABBLK", validate="many_to_one")
    assert len(rows) == (units["HHT"].str.strip() != "0").sum() > 500
    known: dict[tuple[frozenset, str], list[str]] = {}
    found = []
    for row in rows.itertuples():
        races = {getattr(row, f"QRACE{i}").strip() for i in range(1, 9)} - {""}
        combination = frozenset(races), row.QSPAN.strip()
        if combination not in known:
            of_levels = iterations_of(folder / "params", races, combination[1])
            known[combination] = [code for own in of_levels.values() for code in own]
        state, county = row.TABBLKST, row.TABBLKST + row.TABBLKCOU
        regions = {"USA": "1", "STATE": state, "COUNTY": county, "TRACT": county + row.TABTRACTCE}
        if row.PLACEFP != "99999":
            regions["PLACE"] = state + row.PLACEFP
        if row.AIANNHCE != "9999":
            regions["AIANNH"] = row.AIANNHCE
        kind = {"6": 4, "7": 5}.get(row.HHT.strip(), int(row.HHT))
        found += [
            (region, name, code, kind, int(row.TEN))
            for name, region in regions.items()
            for code in known[combination]
        ]
    return pd.DataFrame(found, columns=[*KEY, "t3", "t4"])


@pytest.mark.slow
def test_without_noise_the_rows_are_those_of_a_plain_join(folder: Path) -> None:
    t1 = pd.read_csv(folder / "groups/release/t1.csv", sep="|", dtype=str, skiprows=1)
    config = json.loads((folder / "params/config.json").read_text())
    households = plain_households(folder)
    level_of = {}
    for name in ("race", "ethnicity"):
        own = pd.read_csv(
            folder / f"params/{name}-characteristic-iterations.txt", sep="|", dtype=str
        )
        level_of |= dict(zip(own["ITERATION_CODE"], own["LEVEL"], strict=True))
    for name, categories in CATEGORIES.items():
        counts = households.groupby([*KEY, name]).size().to_dict()
        due = {}
        for row in t1.itertuples(index=False):
            bounds = config[f"thresholds_h_{name}"][
                f"({row.REGION_TYPE}, {level_of[row.ITERATION_CODE]})"
            ]
            table = sum(int(row.COUNT) >= bound for bound in bounds)
            for code in SHOWN[name][table]:
                key = (row.REGION_ID, row.REGION_TYPE, row.ITERATION_CODE)
                due[(*key, code)] = sum(counts.get((*key, own), 0) for own in categories[code])
        rows = pd.read_csv(folder / f"run/release/{name}.csv", sep="|", dtype=str, skiprows=1)
        cells = rows[f"{name.upper()}_DATA_CELL"].astype(int)
        found = dict(
            zip(
                zip(*(rows[key] for key in KEY), cells, strict=True),
                rows["COUNT"].astype(int),
                strict=True,
            )
        )
        assert found == due and len(rows) == len(due)
        assert set(rows.groupby(KEY).size()) == set(map(len, SHOWN[name])), "a table never chosen"


@pytest.mark.slow
def test_what_the_finished_run_suppressed_has_no_households(folder: Path) -> None:
    """Every group was measured there, and some are not shown; none of these has a row here.

    Threat model: a household that moves more counts than charged.
    """
    measured = pd.concat(
        pd.read_parquet(path, columns=[name.lower() for name in KEY])
        for path in (folder / "groups/measurements/detailed_groups").rglob("*.parquet")
    )
    t1 = pd.read_csv(folder / "groups/release/t1.csv", sep="|", dtype=str, skiprows=1)
    assert len(t1) < len(measured)
    tidy = pd.read_parquet(folder / "run/release/detailed_households.parquet")
    shown = set(tidy[[name.lower() for name in KEY]].itertuples(index=False, name=None))
    assert shown == set(t1[KEY].itertuples(index=False, name=None))
    assert (tidy["variance"] == 0).all() and (tidy["margin"] == 0).all()


@pytest.mark.usefixtures("in_process")
def test_a_run_that_is_not_private_chooses_nothing_of_one_that_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = folder / "private.toml"
    private.write_text(f'{TABLES}groups = "groups"\n[privacy]\ndataset = "people"\n')
    assert main(["check", "detailed-households", str(private)]) == 2
    assert "the run is stamped NOT PRIVATE" in capsys.readouterr().err
