"""Counts of generated households against a plain join of both tables in pandas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.supplemental_dhc.ingest import check_households
from spineflow.tasks.supplemental_dhc.plan import COLUMNS, ITERATIONS, MEASURES
from spineflow.tasks.supplemental_dhc.settings import SupplementalDhcSettings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

pytestmark = pytest.mark.usefixtures("judged_once")

MADE = ("HHT", "HHT2", "CPLT", "HHRACE", "HHSPAN", "FINAL_POP", "PAC", "P18")


@pytest.fixture(scope="module")
def households(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a county whose households fit together."""
    folder = tmp_path_factory.mktemp("households")
    generate_county(folder / "raw", persons=4000, seed=8)
    synthesize_households(folder / "raw", folder, seed=8)
    return folder


def settings_of(folder: Path, **own: object) -> SupplementalDhcSettings:
    tree = {
        "preset": "supplemental_dhc_2020_us",
        "input": {
            "persons": str(folder / "persons.parquet"),
            "units": str(folder / "units.parquet"),
            "geography": str(folder / "grfc.txt"),
            "confidential": False,
        },
        "privacy": {"dataset": "d"},
        **own,
    }
    return load_settings(SupplementalDhcSettings, tree, presets=PRESETS)


def joined(folder: Path) -> pd.DataFrame:
    """Persons with their housing units, numbers as numbers."""
    persons = pd.read_parquet(folder / "persons.parquet")
    units = pd.read_parquet(folder / "units.parquet")
    keep = ["MAFID", "RELSHIP", "QAGE", "CENHISP", "CENRACE"]
    of_units = ["MAFID", "RTYPE", "OIDTB", "TEN", "HHT", "HHT2", "CPLT", "HHRACE", "HHSPAN"]
    table = persons[keep].merge(units[of_units], on="MAFID")
    table = table[table["RTYPE"].astype(int) == 2].drop(columns=["RTYPE", "OIDTB"])
    return table.astype({name: int for name in table.columns if name != "MAFID"})


def letters(race: pd.Series, hispanic: pd.Series) -> dict[str, pd.Series]:
    """Whether a record is in each iteration."""
    found = {"*": race > 0}
    found |= {letter: race == place for place, letter in enumerate("ABCDEF", start=1)}
    return found | {"G": race > 6, "H": hispanic == 2, "I": (race == 1) & (hispanic == 1)}


def plain_counts(folder: Path) -> dict[tuple[str, str, int], int]:
    """All counts of persons by measure, iteration and cell, without truncation, in plain pandas."""
    table = joined(folder)
    adult, child = table["QAGE"] >= 18, table["RELSHIP"].between(25, 27)
    minor, kind = ~adult, table["HHT2"]
    family = {
        "married": kind == 1,
        "cohabiting": kind == 3,
        "male": kind == 10,
        "female": kind == 6,
    }
    own = [child & minor & one for one in family.values()]
    rest = minor & ~table["RELSHIP"].between(25, 33)
    related = table["RELSHIP"].isin([20, 21, 23, *range(25, 34)]) & table["HHT"].between(1, 3)
    ages = [(0, 3), (4, 5), (6, 11), (12, 17)]
    cells = {
        "PH1_num": [minor, adult],
        "PH2": [
            *(table["CPLT"].eq(n) & kind.between(1, 4) for n in (1, 2, 3, 4)),
            kind == 9,
            kind.isin([10, 11, 12]),
            kind == 5,
            kind.isin([6, 7, 8]),
        ],
        "PH3": [
            rest,
            *own,
            minor & (table["RELSHIP"] == 30),
            minor & table["RELSHIP"].isin([28, 29, 31, 32, 33]),
        ],
        "PH4": [related & minor, related & adult],
        "PH6": [one & table["QAGE"].between(*age) for one in own for age in ages],
        "PH7": [table["TEN"] == 1, table["TEN"] == 2, table["TEN"] >= 3],
    }
    found = {}
    for measure, masks in cells.items():
        who = ("CENRACE", "CENHISP") if MEASURES[measure].is_by_person else ("HHRACE", "HHSPAN")
        for letter, is_in in letters(table[who[0]], table[who[1]]).items():
            for cell, mask in enumerate(masks):
                found[measure, letter, cell] = int((mask & is_in).sum())
    heads = table[table["RELSHIP"] == 20]
    of_units = {
        "PH1_denom": [heads["HHT"] > 0],
        "PH5_denom": [heads["HHT"] <= 3],
        "PH8_denom": [heads["TEN"] <= 2, heads["TEN"] >= 3],
    }
    for measure, masks in of_units.items():
        for letter, is_in in letters(heads["HHRACE"], heads["HHSPAN"]).items():
            for cell, mask in enumerate(masks):
                found[measure, letter, cell] = int((mask & is_in).sum())
    return found


def by_name(row: np.ndarray) -> dict[tuple[str, str, int], int]:
    """A row of counts by measure, iteration and cell."""
    return {
        (name, letter, cell): int(row[COLUMNS[name, key]].reshape(-1, one.n_cells)[place, cell])
        for name, one in MEASURES.items()
        for key in one.iterations
        for place, letter in enumerate(ITERATIONS[key])
        for cell in range(one.n_cells)
    }


def test_counts_are_those_of_a_plain_join(households: Path) -> None:
    """tau is larger than any household, so that nobody is left out."""
    mechanism = {"truncation": dict.fromkeys(("PH1_num", "PH2", "PH3", "PH4", "PH6", "PH7"), 99)}
    accepted = check_households(settings_of(households, mechanism=mechanism)).accepted()
    assert len(accepted.areas) == 1
    found, plain = by_name(accepted.counts.toarray()[0]), plain_counts(households)
    assert found == {key: value for key, value in plain.items() if key in found}
    table = joined(households)
    assert found["PH1_num", "*", 0] + found["PH1_num", "*", 1] == len(table)
    assert found["PH2", "*", 0] > 0 and found["PH3", "*", 5] > 0
    assert sum(found["PH1_denom", letter, 0] for letter in "ABCDEFG") == table["MAFID"].nunique()


def test_of_a_household_tau_persons_of_the_universe_stay(households: Path) -> None:
    """What the cells tell of the whole is what a join with a cap on each household tells."""
    accepted = check_households(
        settings_of(households, mechanism={"truncation": {"PH1_num": 3, "PH3": 1}})
    ).accepted()
    found, table = by_name(accepted.counts.toarray()[0]), joined(households)
    persons = table.groupby("MAFID").size().clip(upper=3).sum()
    assert found["PH1_num", "*", 0] + found["PH1_num", "*", 1] == persons
    minors = table[table["QAGE"] < 18].groupby("MAFID").size().clip(upper=1).sum()
    assert sum(found["PH3", "*", cell] for cell in range(7)) == minors
    assert sum(found["PH2", "*", cell] for cell in range(8)) == (
        table.groupby("MAFID").size().clip(upper=10).sum()
    )


def test_what_a_table_of_units_lacks_is_made_of_the_members(
    households: Path, tmp_path: Path
) -> None:
    whole = check_households(settings_of(households)).accepted()
    units = pd.read_parquet(households / "units.parquet")
    for name in ("persons.parquet", "grfc.txt"):
        (tmp_path / name).write_bytes((households / name).read_bytes())
    units.drop(columns=list(MADE)).to_parquet(tmp_path / "units.parquet")
    made = check_households(settings_of(tmp_path)).accepted()
    assert (made.counts != whole.counts).nnz == 0
    known, asked = (found.census.digests(b"key")["persons"] for found in (whole, made))
    assert known.whole == asked.whole
    assert len({*known.parts} & {*asked.parts}) > 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "persons.parquet",
        "grfc.txt",
        "units.parquet",
    }
