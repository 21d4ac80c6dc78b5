"""Two ledgers made one: nothing is lost or doubled, and never are there two that can be charged."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger import joining, store
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.charging import claim, record_publication
from spineflow.tasks.ledger.joining import join
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import add_keys, ledger_at, open_ledger, read_key
from spineflow.tasks.noise.distributions import Noise
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused

from tests.tasks.ledger.charged_runs import charge_run, draw

FORK = multiprocessing.get_context("fork")
TABLES = ("datasets", "inputs", "published", "draws", "conditions", "noise", "directories")
HERE = "here 1"


def charged(path: Path, dataset: str, run_id: str) -> None:
    """A run that is charged, has published a file and draws another."""
    ledger = open_ledger(path)
    measure = Measure("Block/total", Noise("discrete_gaussian", Fraction(1)), answers=9)
    charge_run(
        ledger,
        run_id,
        [replace(draw(Fraction(1, 3)), measures=(measure,))],
        dataset=dataset,
        inputs={"persons": InputDigest(f"whole of {dataset}", (f"part of {dataset}",))},
        files={"settings.toml": "s", "confidential/histograms/persons.parquet": "t"},
        directory=(HERE, None),
    )
    done, _ = (
        claim(ledger, run_id=run_id, identity=HERE, name=name, draw="persons") for name in "ab"
    )
    record_publication(ledger, replace(done, n_drawn=3), "digest")


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A ledger that stays, and another: with runs on datasets of their own, and on one of both."""
    paths = tmp_path / "one.db", tmp_path / "other.db"
    for number, path in enumerate(paths):
        charged(path, f"own {number}", f"run {number}")
    for number, path in enumerate(paths):
        ledger = open_ledger(path)
        set_caps(ledger, f"own {number}", Caps(Fraction(2)))
        charged(path, f"common {number}", f"common run {number}")
        set_caps(ledger, "both", Caps(Fraction(5 + number)))
    return paths


def rows(path: Path, *tables: str) -> dict[str, list[tuple]]:
    with sqlite3.connect(path) as connection:
        found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    return {name: sorted(map(tuple, found[name]), key=repr) for name in found}


def usable(path: Path) -> bool:
    """Whether something can be charged to the ledger under this name."""
    try:
        set_caps(open_ledger(path, must_exist=True), "probe", Caps(Fraction(9)))
    except BudgetRefused:
        return False
    return True


def test_all_rows_of_both_are_there_once(two: tuple[Path, Path]) -> None:
    """Threat model: a join of ledgers killed, or undone by restoring a backup."""
    one, other = two
    before = [rows(path, *TABLES, "claims") for path in two]
    assert join(one, other).path == one
    after = rows(one, *TABLES, "claims")
    for name in (*TABLES, "claims"):
        together = before[0][name] + before[1][name]
        if name == "datasets":
            together = [row for row in together if row[:2] != ("both", "6")]
        assert after[name] == sorted(together, key=repr), name
    assert read_key(ledger_at(one).key_path).joined == (read_key(Path(f"{other}.key")).key,)
    assert rows(one, "joined_runs")["joined_runs"] == [
        (run, read_key(Path(f"{other}.key")).fingerprint) for run in ("common run 1", "run 1")
    ]


def test_runs_of_the_joined_ledger_go_on_in_the_other(two: tuple[Path, Path]) -> None:
    one, other = two
    key = open_ledger(other).key()
    join(one, other)
    ledger = ledger_at(other)
    assert ledger.path == one
    assert ledger.key_of_run("run 1") == key
    assert ledger.key_of_run("run 0") == ledger.key() != key
    again = claim(ledger, run_id="run 1", identity=HERE, name="b", draw="persons")
    record_publication(ledger, replace(again, n_drawn=3), "digest of b")
    people = {"persons": InputDigest("under the own key")}
    with pytest.raises(BudgetRefused, match="know"):
        asked = [InputDigest("whole of own 1")]
        charge_run(ledger, "new", dataset="new", inputs=people, further_inputs=asked)


def test_a_joined_ledger_may_be_joined_again(two: tuple[Path, Path], tmp_path: Path) -> None:
    one, other = two
    third = open_ledger(tmp_path / "third.db")
    join(one, other)
    join(third.path, one)
    assert ledger_at(other) == ledger_at(one) == third
    assert len(third.keys()) == 3
    assert third.key_of_run("run 1") == read_key(Path(f"{other}.key")).key
    assert third.key_of_run("run 0") == read_key(Path(f"{one}.key")).key


def test_copies_are_not_joined(two: tuple[Path, Path], tmp_path: Path) -> None:
    """Threat model: a join of ledgers killed, or undone by restoring a backup."""
    one, other = two
    copy = tmp_path / "copy.db"
    for suffix in ("", ".key"):
        shutil.copy2(f"{one}{suffix}", f"{copy}{suffix}")
    with pytest.raises(BudgetRefused, match="have a key in common"):
        join(one, copy)
    charged(tmp_path / "third.db", "third", "run 0")
    with pytest.raises(BudgetRefused, match="have a run in common"):
        join(one, tmp_path / "third.db")
    assert usable(copy)
    assert usable(tmp_path / "third.db")
    for wrong, told in ((one, "is the ledger that"), (tmp_path / "no.db", "no such ledger")):
        with pytest.raises(InputRefused, match=told):
            join(one, wrong)
    join(one, other)
    with pytest.raises(InputRefused, match="would be joined to"):
        join(other, one)
    with pytest.raises(InputRefused, match="is the ledger that it would|was joined to .* before"):
        join(one, other)
    with pytest.raises(InputRefused, match="give that ledger"):
        join(copy, other)


def test_a_ledger_that_is_held_while_another_is_joined_to_it_is_told_of(two) -> None:
    one, other = two
    held = open_ledger(other)
    join(one, other)
    with pytest.raises(BudgetRefused, match="joined to another meanwhile"):
        set_caps(held, "probe", Caps(Fraction(1)))


def dies(point: str, one: Path, other: Path) -> None:
    """Join in a process that is gone at a point: before a step, within or after it."""
    step, _, when = point.partition(" ")
    owner = {"retire": joining, "add_keys": joining, "_move": joining, "write_mark": store}[step]
    done = getattr(owner, step)

    def deadly(*arguments):
        if when == "before":
            os._exit(9)
        if when == "within":
            connection = arguments[1]
            connection.execute("DELETE FROM inputs")
            os._exit(9)
        if step != "write_mark" or Path(arguments[0]) == Path(f"{one}.key"):
            done(*arguments)
            os._exit(9)
        return done(*arguments)

    setattr(owner, step, deadly)
    join(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "retire before",
        "retire after",
        "add_keys before",
        "add_keys after",
        "_move before",
        "_move within",
        "_move after",
        "write_mark before",
        "write_mark after",
    ],
)
def test_a_join_that_is_killed_leaves_one_ledger_and_is_ended_by_the_next(
    point: str, two: tuple[Path, Path]
) -> None:
    """Threat model: a join of ledgers killed, or undone by restoring a backup."""
    one, other = two
    before = [rows(path, *TABLES) for path in two]
    process = FORK.Process(target=dies, args=(point, one, other))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    # Under both names it is one ledger, or the other is refused; or nothing has happened yet.
    if point == "retire before":
        assert open_ledger(other).path == other
    elif usable(other):
        assert open_ledger(other).path == one
    else:
        with pytest.raises(BudgetRefused, match=f"spineflow ledger join {other} --ledger {one}"):
            open_ledger(other, must_exist=True)
    assert open_ledger(one).path == one
    try:
        join(one, other)
    except InputRefused as refused:
        assert "is the ledger that it would be joined to" in str(refused) or "before" in str(
            refused
        )
    after = rows(one, *TABLES)
    for name in set(TABLES) - {"datasets"}:
        assert after[name] == sorted(before[0][name] + before[1][name], key=repr), name
    assert open_ledger(other) == open_ledger(one)


def test_a_join_that_an_older_version_began_is_ended(two: tuple[Path, Path]) -> None:
    one, other = two
    before = [rows(path, *TABLES) for path in two]
    joining.retire(open_ledger(other), open_ledger(one))
    with sqlite3.connect(other) as connection:
        connection.execute("ALTER TABLE draws DROP COLUMN stated_factor")
        connection.execute("PRAGMA user_version = 5")
    connection.close()
    assert join(one, other) == open_ledger(one)
    after = rows(one, *TABLES)
    for name in set(TABLES) - {"datasets"}:
        assert after[name] == sorted(before[0][name] + before[1][name], key=repr), name


def test_keys_are_kept_with_the_mark(two: tuple[Path, Path]) -> None:
    one, _ = two
    ledger = open_ledger(one)
    add_keys(ledger.key_path, [b"j" * 32, b"j" * 32])
    set_caps(ledger, "probe", Caps(Fraction(1)))
    assert read_key(ledger.key_path).joined == (b"j" * 32,)
    assert ledger.key_path.stat().st_mode & 0o777 == 0o600
