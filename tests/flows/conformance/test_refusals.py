"""What every product refuses: input and settings that are wrong, and what is beyond a cap.

Each ends in one sentence with exit code 2 or 3, quotes nobody, and leaves nothing that was measured
and nothing that was charged. The rules on census tables are in `test_refusals.py` of the flows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger

from tests.flows.conformance.cases import CASES, PRODUCTS

Change = Callable[[Path], None]

PLANTED = ("77777", "73197319")
"""What is put into records, and must not be quoted."""


def replaced(name: str, old: str, new: str) -> Change:
    """A change of the first place of a text in a file."""

    def change(folder: Path) -> None:
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def with_lines(name: str, change: Callable[[list[str]], list[str]]) -> Change:
    """A change of the lines of a file."""

    def changed(folder: Path) -> None:
        path = folder / name
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return changed


def with_first(name: str, column: str, value: float | str) -> Change:
    """Another value in the first row of a Parquet file."""

    def change(folder: Path) -> None:
        table = pd.read_parquet(folder / name)
        table[column] = [value, *table[column][1:]]
        table.to_parquet(folder / name)

    return change


def with_rows(name: str, column: str, change: Callable[[pd.Series], pd.Series]) -> Change:
    """Other values in a column of a Parquet file."""

    def changed(folder: Path) -> None:
        table = pd.read_parquet(folder / name)
        table.assign(**{column: change(table[column])}).to_parquet(folder / name)

    return changed


BLOCKS, PARAMETERS = "data/GRF-C.txt", "params/config.json"
SETTINGS = "settings.toml"

REFUSED: dict[str, dict[str, tuple[Change, str]]] = {
    "supplemental dhc": {
        "two spouses": (
            with_rows("persons.parquet", "RELSHIP", lambda own: own.replace({"25": "21", 25: 21})),
            "a household must have no more than one spouse or partner",
        ),
        "no tenure": (
            with_rows("units.parquet", "TEN", lambda own: own.where(own.isna(), 0)),
            "TEN of a housing unit in which people live must be 1, 2, 3 or 4",
        ),
        "another type of household": (
            with_rows("units.parquet", "HHT", lambda own: own.astype(int) % 7 + 1),
            "HHT of a housing unit must agree with its members in persons.parquet",
        ),
        "unknown table": (
            replaced(SETTINGS, "[privacy]", '[mechanism.budgets.PH9.US]\n"*" = "1"\n[privacy]'),
            "mechanism.budgets.PH9: there are PH1_num",
        ),
        "unknown iterations": (
            replaced(SETTINGS, "[privacy]", '[mechanism.budgets.PH2.US]\nH = "1"\n[privacy]'),
            "it is counted by",
        ),
        "a level without a budget": (
            replaced(
                SETTINGS, "[privacy]", '[geography]\nlevels = ["US", "State", "County"]\n[privacy]'
            ),
            "nothing is measured at the level County",
        ),
        "unknown level": (
            replaced(
                SETTINGS,
                "[privacy]",
                '[geography]\nlevels = ["US", "State", "WARD"]\n'
                '[mechanism.budgets.PH2.WARD]\n"*" = "1"\n[privacy]',
            ),
            "geography.levels names 'WARD'",
        ),
    },
    "group sizes": {
        "no size": (with_first("sizes.parquet", "size", 0), "size must be a whole number of at"),
        "half a size": (with_first("sizes.parquet", "size", 1.5), "size must be a whole number"),
        "unknown region": (
            with_first("sizes.parquet", "region", PLANTED[0]),
            "region must be a region of the finest level",
        ),
        "unknown parent": (
            replaced("regions.csv", "county,01001,01", "county,01001,0"),
            "01001 of level county has a parent",
        ),
        "another number of groups": (
            replaced(SETTINGS, "groups = true", "groups = 5"),
            "the number of groups must be that of",
        ),
        "no epsilon": (
            replaced(SETTINGS, 'epsilon = "1"', 'epsilon = "0"'),
            "epsilon must be a positive fraction",
        ),
        "no number of groups": (
            replaced(SETTINGS, "groups = true", "groups = false"),
            "declare it with invariants.groups",
        ),
    },
    "trips": {
        "negative": (
            with_first("trips.parquet", "commuters", -int(PLANTED[1])),
            "commuters must not be negative in any row",
        ),
        "half a trip": (
            with_first("trips.parquet", "commuters", 0.5),
            "commuters must be a whole number in every row",
        ),
        "no epsilon": (
            replaced(SETTINGS, 'epsilon = "1"', 'epsilon = "0"'),
            "privacy.epsilon must be a positive fraction",
        ),
        "no areas": (removed("areas.csv"), "areas.csv: the file does not exist"),
        "too few shares": (
            replaced(SETTINGS, "[privacy]", '[mechanism]\nshares = ["1"]\n[privacy]'),
            "lists 1 shares, but",
        ),
    },
    "detailed groups": {
        "thresholds out of order": (
            replaced(PARAMETERS, "200,", "20,"),
            "config.json: thresholds_p '(USA, 1)' must be in ascending order",
        ),
        "budget negative": (
            replaced(PARAMETERS, '_usa": 0.25', '_usa": -0.25'),
            "privacy_budget_p_level_1_usa is negative",
        ),
        "code mapped twice": (
            with_lines(
                "params/race-and-ethnicity-code-to-iteration.txt", lambda own: [*own, own[-1]]
            ),
            "is listed more than once",
        ),
        "no configuration": (removed(PARAMETERS), "[mechanism]: the key 'run_us' is missing"),
        "no specification": (
            removed("params/race-and-ethnicity-codes.txt"),
            "race-and-ethnicity-codes.txt: the file does not exist",
        ),
        "two inputs": (
            replaced(SETTINGS, 'data = "data"', 'data = "data"\npersons = "p"'),
            "[input] needs either data, or all of persons, units and geography",
        ),
        "unknown region type": (
            replaced(SETTINGS, "[privacy]", '[mechanism.budgets.WARD]\n1 = "1"\n[privacy]'),
            "mechanism.budgets.WARD must be one of USA",
        ),
        "block missing from the geography": (
            with_lines(BLOCKS, lambda own: [own[0], *own[9:]]),
            "must be in the geography",
        ),
        "block listed twice": (
            with_lines(BLOCKS, lambda own: [*own, own[3]]),
            "must occur once",
        ),
        "blank age": (
            with_lines("data/person-records.txt", lambda own: [*own[:5], own[5][3:], *own[6:]]),
            "QAGE must be a whole number from 0 to 115",
        ),
    },
}


HOUSEHOLDS = "detailed households"
REFUSED[HOUSEHOLDS] = {
    "no thresholds": (
        replaced(PARAMETERS, "thresholds_h_t4", "thresholds_h_t5"),
        "the key 'thresholds_h_t4' is missing",
    ),
    "budget negative": (
        replaced(PARAMETERS, 'h_t3_level_1_usa": 0.25', 'h_t3_level_1_usa": -0.25'),
        "privacy_budget_h_t3_level_1_usa is negative",
    ),
    "unknown tabulation": (
        replaced(SETTINGS, "[privacy]", '[mechanism.budgets.t5.USA]\n1 = "1"\n[privacy]'),
        "mechanism.budgets.t5 must be one of t3, t4",
    ),
    "no run": (
        replaced(SETTINGS, 'groups = "groups"', 'groups = "params"'),
        "params is no directory of a run",
    ),
    "no release": (removed("groups/release/t1.csv"), "the run groups has no release yet"),
    "other people": (
        replaced(SETTINGS, 'dataset = "people"', 'dataset = "others"'),
        "input.groups is of the dataset people; name a run of others",
    ),
    "another specification": (
        replaced("params/race-characteristic-iterations.txt", "Region 0", "Region zero"),
        "a run with another specification of groups",
    ),
    "an edited run": (
        replaced("groups/settings.toml", "confidential = true", ""),
        "has been edited since the run began",
    ),
    "no such pass": (
        replaced(SETTINGS, "[privacy]", "[mechanism]\nrun_us = false\nrun_pr = true\n[privacy]"),
        "no row is in the states of the pass run_pr",
    ),
    "a type that members contradict": (
        with_first("units.parquet", "HHT", int(PLANTED[0])),
        "HHT of a housing unit must agree with its members in persons.parquet",
    ),
}


def run_refused(case: str, folder: Path, capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one sentence of a run that is refused, and leaves nothing but what it read."""
    run = folder / "run"
    capsys.readouterr()
    command = ["run", CASES[case].product, str(folder / SETTINGS), "--run-dir", str(run)]
    assert main(command) == code
    error = capsys.readouterr().err
    assert error.startswith("spineflow: ") and error.count("\n") == 1, error
    for name in ("measurements", "release", "release-unchecked", "report"):
        assert not (run / name).exists()
    return error


def charged(folder: Path) -> list[str]:
    """The datasets that the ledger beside a run has charges of."""
    ledger = folder / "ledger.db"
    datasets = summary(open_ledger(ledger))["datasets"] if ledger.exists() else {}
    return [name for name, dataset in datasets.items() if dataset["products"]]


@pytest.mark.usefixtures("judged_in_process")
@pytest.mark.parametrize(
    ("case", "what"), [(case, what) for case, own in REFUSED.items() for what in own]
)
def test_what_is_wrong_is_named_before_anything_is_charged(
    case: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, sentence = REFUSED[case][what]
    CASES[case].write(tmp_path)
    change(tmp_path)
    error = run_refused(case, tmp_path, capsys, 2)
    assert sentence in error
    assert "break" not in error, "how many rows are concerned is confidential"
    assert not any(value in error for value in PLANTED)
    assert not charged(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("case", (*PRODUCTS, "schools"))
def test_a_cap_stops_a_run_before_noise(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CASES[case].write(tmp_path)
    ledger = str(tmp_path / "ledger.db")
    assert main(["ledger", "init", "--cap", "1/10000", "--ledger", ledger]) == 0
    assert "cap" in run_refused(case, tmp_path, capsys, 3)
    assert not charged(tmp_path)
