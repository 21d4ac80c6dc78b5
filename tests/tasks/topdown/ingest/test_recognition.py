"""The people of a declared census are recognised in other declarations and other products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import Ledger, open_ledger
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.census_inputs import check_inputs
from tests.seeds import covering
from tests.tasks.ledger.charged_runs import charge_run
from tests.tasks.topdown.offices import Office, budget, office


def in_part(known: Office) -> Office:
    """A third of the towns."""
    return replace(
        known,
        areas=known.areas[known.areas["town"] % 3 == 0],
        people=known.people[((known.people["section"] - 1000) // 10 + 100) % 3 == 0],
    )


def of_other_names(known: Office) -> Office:
    """Areas, columns and values of areas under other names, in another order."""
    renamed = known.areas.assign(
        region="R" + known.areas["region"].astype(str),
        town="T" + known.areas["town"].astype(str),
        section="S" + (9999 - known.areas["section"]).astype(str),
    )
    people = known.people.assign(section="S" + (9999 - known.people["section"]).astype(str))
    people = people.rename(columns={"age": "years"}).sample(frac=1, random_state=1)
    attributes = {**known.attributes, "age": known.attributes["age"].replace("age", "years")}
    return replace(known, areas=renamed, people=people, attributes=attributes)


def in_partitions(people: pd.DataFrame, folder: Path) -> str:
    """A folder of Parquet files."""
    (folder / "people").mkdir()
    for number, rows in enumerate(np.array_split(people.sample(frac=1, random_state=2), 3)):
        part = pd.DataFrame(rows, columns=people.columns).astype(str)
        part.to_parquet(folder / "people" / f"{number}.parquet", index=False)
    return "people"


def counted(known: Office) -> Office:
    """One row for all who are alike."""
    people = known.people.groupby([*known.people], as_index=False).size()
    return replace(known, people=people, further='count = "size"')


def with_bins(known: Office, bins: str) -> Office:
    attributes = {**known.attributes, "age": f'column = "age"\nbins = {bins}\nlargest = 110'}
    return replace(known, attributes=attributes)


OTHERS: dict[str, Callable[[Office], Office]] = {
    "a moved bin": lambda known: with_bins(known, "[0, 17, 40, 65]"),
    "an attribute less": lambda known: replace(
        known, attributes={"age": known.attributes["age"], "sex": known.attributes["sex"]}
    ),
    "only one": lambda known: replace(known, attributes={"work": known.attributes["work"]}),
    "another universe": lambda known: replace(known, universe="inhabitants"),
    "other names": of_other_names,
    "coarser areas": lambda known: replace(
        known,
        areas=known.areas.drop(columns="section").drop_duplicates(),
        people=known.people.assign(town=(known.people["section"] - 1000) // 10 + 100),
        levels=("nation", "region", "town"),
    ),
    "no regions": lambda known: replace(known, levels=("nation", "town", "section")),
    "partitions": lambda known: replace(with_bins(known, "[0, 9]"), write=in_partitions),
    "counts of rows": lambda known: with_bins(counted(known), "[0, 9]"),
    "another identity": lambda known: replace(known, further='identity = ["work"]'),
    "a part": in_part,
    "a part under other names": lambda known: of_other_names(in_part(known)),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path / "ledger.db")


def charged(ledger: Ledger, dataset: str, inputs: Mapping[str, InputDigest]) -> None:
    charge_run(ledger, f"run on {dataset}", dataset=dataset, inputs=inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("which", "is_first"), covering([*OTHERS], [True, False]))
def test_declared_people_are_recognised(
    which: str, is_first: bool, ledger: Ledger, tmp_path: Path
) -> None:
    """Threat model: the same people under another name."""
    known, other = office(), OTHERS[which](office())
    if not is_first:
        known, other = other, known
    charged(ledger, "people", known.digests(tmp_path / "known", ledger.key()))
    with pytest.raises(BudgetRefused, match="ledger knows as dataset \"?'?people"):
        charged(ledger, "others", other.digests(tmp_path / "other", ledger.key()))


@pytest.mark.slow
def test_others_are_not_recognised(ledger: Ledger, tmp_path: Path) -> None:
    """Threat model: other people of the same distribution."""
    charged(ledger, "people", office().digests(tmp_path / "known", ledger.key()))
    for seed in range(2, 6):
        folder = tmp_path / str(seed)
        charged(ledger, f"others {seed}", office(seed).digests(folder, ledger.key()))


@pytest.mark.slow
def test_identity_chooses_the_columns(ledger: Ledger, tmp_path: Path) -> None:
    """Two declarations whose identities have no column in common do not know each other."""
    known = replace(office(), further='identity = ["work"]')
    other = replace(with_bins(office(), "[0, 9]"), further='identity = ["age"]')
    charged(ledger, "people", known.digests(tmp_path / "known", ledger.key()))
    charged(ledger, "others", other.digests(tmp_path / "other", ledger.key()))
    both = replace(with_bins(office(), "[0, 8]"), further='identity = ["age", "work"]')
    with pytest.raises(BudgetRefused):
        charged(ledger, "both", both.digests(tmp_path / "both", ledger.key()))


def test_an_identity_that_is_no_attribute_is_refused(tmp_path: Path) -> None:
    known = replace(office(), further='identity = ["height"]')
    with pytest.raises(Exception, match="identity 'height', which is no attribute of it"):
        known.digests(tmp_path / "known", b"k")


DECLARED = """
[input]
blocks = "{county}/grfc.txt"
homes = "{county}/units.parquet"
people = "{county}/persons.parquet"
[privacy]
dataset = "d"
[census.geography]
table = "blocks"
geolevels = ["nation", "tract", "block"]
columns = {{ tract = "TABTRACTCE", block = "OIDTABBLK" }}
[census.attributes.{attribute}
[census.universes.people]
table = "people"
area = "OIDTB"
through = {{ column = "MAFID", table = "homes", key = "MAFID" }}
attributes = ["{name}"]
[census.universes.homes]
table = "homes"
area = "OIDTB"
where = {{ RTYPE = ["2"] }}
attributes = ["vacancy"]
[census.attributes.vacancy]
column = "VACS"
levels = {{ no = ["0"], yes = [{{ from = 1, to = 9 }}] }}
[geography]
spine = "conventional"
[run]
universes = ["people", "homes"]
"""
LEVELS = ("nation", "tract", "block")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("universe", "attribute"),
    covering(
        ["people", "homes"],
        [
            'age]\ncolumn = "QAGE"\nnumbers = [0, 115]',
            'race]\ncolumn = "CENRACE"\nnumbers = [1, 63]',
        ],
    ),
)
def test_people_of_the_2020_layout_are_recognised_in_a_declaration(
    universe: str, attribute: str, county: Path, ledger: Ledger, tmp_path: Path
) -> None:
    """Threat model: the same people under another name."""
    tables = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
    result = check_inputs(**{name: county / file for name, file in tables.items()}).accepted()
    charged(ledger, "county", result.digests(ledger.key()))
    file = tmp_path / "settings.toml"
    name = attribute.partition("]")[0]
    declared = DECLARED.format(county=county, attribute=attribute, name=name)
    file.write_text(declared + budget("people", LEVELS) + budget("homes", LEVELS))
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    found = check_input_of(settings).accepted().digests(ledger.key())
    with pytest.raises(BudgetRefused, match="county"):
        charged(ledger, "others", {universe: found[universe]})
