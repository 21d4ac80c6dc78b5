from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import IDENTITY_COLUMNS as PERSON_COLUMNS
from spineflow.tasks.ledger.identity import (
    DIGESTS_ELSEWHERE,
    digests_to_charge,
    list_file,
    listed_ledgers,
    refuse_changed_input,
    refuse_known_elsewhere,
    store_identity,
    stored_digests,
    unasked_ledgers,
    whole_digests,
)
from spineflow.tasks.ledger.joining import join
from spineflow.tasks.ledger.recognition import (
    INPUT_DIGESTS,
    InputDigest,
    input_digest,
    unnamed_digest,
)
from spineflow.tasks.ledger.store import Ledger, open_ledger
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tasks.ledger.charged_runs import charge_run

KEY = b"k" * 32


def persons(n: int = 500, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    blocks = np.array([4400101000011000, 4400101000011001, 4400302000011000])
    columns = (rng.choice(blocks, n), rng.integers(0, 116, n), rng.integers(0, 63, n))
    return dict(zip(PERSON_COLUMNS, (*columns, rng.integers(1, 3, n)), strict=True))


def rearranged(columns: dict, order: np.ndarray) -> dict:
    return {name: column[order] for name, column in columns.items()}


def test_order_of_records_and_type_of_geocodes_do_not_matter():
    people = persons()
    order = np.random.default_rng(2).permutation(500)
    shuffled = rearranged(people, order)
    shuffled["block_geocode"] = shuffled["block_geocode"].astype(str).astype(object)
    assert input_digest("persons", shuffled, KEY) == input_digest("persons", people, KEY)


def test_every_record_and_its_multiplicity_matter():
    people = persons()
    whole = input_digest("persons", people, KEY).whole
    others = {input_digest("persons", people, b"other key" * 4).whole}
    others.add(input_digest("units", people, KEY).whole)
    others.add(input_digest("persons", rearranged(people, np.arange(499)), KEY).whole)
    others.add(input_digest("persons", rearranged(people, np.r_[0:500, 0]), KEY).whole)
    older = {**people, "age": people["age"] + (np.arange(500) == 7)}
    others.add(input_digest("persons", older, KEY).whole)
    swapped = {name: people[name] for name in ("block_geocode", "cenrace", "age", "persons")}
    others.add(input_digest("persons", swapped, KEY).whole)
    assert whole not in others
    assert len(others) == 6


def test_a_county_alone_is_a_part_of_its_state():
    """Threat model: the same people under another name."""
    people = persons()
    state = input_digest("persons", people, KEY)
    in_county = people["block_geocode"] // 10**11 == 44003
    county = input_digest("persons", rearranged(people, np.flatnonzero(in_county)), KEY)
    assert len(state.parts) == 2
    assert county.whole in state.parts
    assert county.parts == (county.whole,)


def test_strings_and_tables_without_blocks():
    trips = {"origin": np.array(["a", "bb", "é"]), "n": np.array([1, 2, 3])}
    digest = input_digest("trips", trips, KEY)
    assert digest.parts == ()
    reversed_trips = {name: column[::-1] for name, column in trips.items()}
    assert input_digest("trips", reversed_trips, KEY) == digest
    empty = {name: column[:0] for name, column in persons().items()}
    assert input_digest("persons", empty, KEY).parts == ()


def test_floats_are_refused():
    with pytest.raises(TypeError, match="not floats"):
        input_digest("trips", {"n": np.array([1.5])}, KEY)


def unnamed(table: dict[str, np.ndarray], key: bytes = b"k") -> str:
    *columns, count = table.values()
    return unnamed_digest("trips", columns, count, key)


TRIPS = {
    "home": np.array(["a1", "a2", "b1", "b1"]),
    "work": np.array(["b1", "a1", "a2", "b1"]),
    "n": np.array([3, 4, 5, 6]),
}


def test_a_table_of_counts_is_known_under_other_names_and_in_another_order() -> None:
    """Threat model: the same people under another name."""
    digest = unnamed(TRIPS)
    assert unnamed({f"other {name}": column for name, column in TRIPS.items()}) == digest
    assert unnamed({name: column[::-1] for name, column in TRIPS.items()}) == digest
    home, work, n = TRIPS.values()
    assert unnamed({"work": work, "home": home, "n": n}) == digest
    region = np.array([code[0] for code in home])
    assert unnamed({"region": region, "home": home, "work": work, "n": n}) == digest


def test_other_trips_are_others() -> None:
    home, work, n = TRIPS.values()
    digest = unnamed(TRIPS)
    assert unnamed({"home": home, "work": work, "n": n + np.array([1, -1, 0, 0])}) != digest
    assert unnamed({"home": home, "work": np.roll(work, 1), "n": n}) != digest
    assert unnamed({"home": home, "work": work, "n": n}, b"another key") != digest


PEOPLE = {"persons": InputDigest("00", ("01", "02"))}


def started(tmp_path: Path, more: str = ""):
    file = tmp_path / "settings.toml"
    file.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n{more}'
    )
    presets = Path(__file__).resolve().parents[3] / "flows" / "settings"
    settings = load_settings(TopdownSettings, file, presets=presets)
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    return run, settings


def test_a_run_is_charged_for_the_people_that_were_read(tmp_path: Path) -> None:
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    run.update_manifest(input_digests=whole_digests(run))
    assert digests_to_charge(run, settings) == PEOPLE


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_digests_that_went_away_are_not_no_digests(tmp_path: Path, how: str) -> None:
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    run.update_manifest(input_digests=whole_digests(run))
    path = run.confidential / INPUT_DIGESTS
    path.unlink() if how == "missing" else path.write_text(path.read_text().replace("00", "ff"))
    with pytest.raises(InputRefused, match=f"{INPUT_DIGESTS} is {how}"):
        digests_to_charge(run, settings)


def test_runs_that_are_not_private_need_none(tmp_path: Path) -> None:
    more = 'confidential = false\n[privacy]\ndataset = "d"\ninfinite = true\n'
    run, settings = started(tmp_path, more)
    assert digests_to_charge(run, settings) == {}


def test_a_new_file_of_a_table_is_a_change(tmp_path: Path) -> None:
    for name in ("p/a.parquet", "p/b.parquet", "u", "g"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("rows")
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    refuse_changed_input(run, settings)
    (tmp_path / "p" / "c.parquet").write_text("rows")
    with pytest.raises(InputRefused, match="c.parquet is new among the files of the input"):
        refuse_changed_input(run, settings)
    (tmp_path / "p" / "c.parquet").rename(tmp_path / "p" / "b.parquet")
    with pytest.raises(InputRefused, match="b.parquet has changed since this run read it"):
        refuse_changed_input(run, settings)


def owned(folder: Path, ledger: Path, dataset: str):
    """A run of confidential people, of which the given digests are made, and its ledger."""
    folder.mkdir()
    run, settings = started(folder, f'[privacy]\ndataset = "{dataset}"\nledger = "{ledger}"\n')
    store_identity(run, settings, lambda key: {"persons": InputDigest(key.hex(), ("x",))})
    return run, settings, open_ledger(ledger)


def charge_people(run: RunDirectory, ledger: Ledger, dataset: str) -> None:
    run_id = run.read_manifest()["run_id"]
    charge_run(ledger, run_id, dataset=dataset, inputs=stored_digests(run))


def test_people_whom_another_ledger_of_the_machine_knows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINEFLOW_LEDGERS", str(tmp_path / "list"))
    first, _, old = owned(tmp_path / "a", tmp_path / "old.db", "town")
    charge_people(first, old, "town")
    empty = open_ledger(tmp_path / "empty.db")
    (tmp_path / "list").write_text(f"{old.path}\n{empty.path}\n")
    assert list_file() == tmp_path / "list"
    assert listed_ledgers() == [old.path, empty.path]
    run, settings, new = owned(tmp_path / "b", tmp_path / "new.db", "village")
    own = stored_digests(run)
    elsewhere = json.loads((run.confidential / DIGESTS_ELSEWHERE).read_text())["elsewhere"]
    assert len(elsewhere) == 2, "under the keys of both other ledgers"
    with pytest.raises(BudgetRefused, match="old.db, knows as dataset 'town'; set .*ledger join"):
        refuse_known_elsewhere(run, settings, new, own)
    public = settings.model_copy(
        update={"input": settings.input.model_copy(update={"confidential": False})}
    )
    refuse_known_elsewhere(run, public, new, own)
    (tmp_path / "list").write_text(f"{empty.path}\n{tmp_path / 'gone.db'}\n")
    known = refuse_known_elsewhere(run, settings, new, own)
    assert known == list(own.values())
    assert [str(tmp_path / "gone.db") in told for told in unasked_ledgers(settings)] == [True]


def test_a_ledger_that_was_joined_to_another_and_put_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINEFLOW_LEDGERS", str(tmp_path / "list"))
    run, settings, mine = owned(tmp_path / "a", tmp_path / "mine.db", "town")
    for name in ("mine.db", "mine.db.key"):
        shutil.copy(tmp_path / name, tmp_path / f"kept-{name}")
    open_ledger(tmp_path / "other.db")
    join(tmp_path / "other.db", tmp_path / "mine.db")
    for name in ("mine.db", "mine.db.key"):
        (tmp_path / name).unlink()
        shutil.copy(tmp_path / f"kept-{name}", tmp_path / name)
    (tmp_path / "list").write_text(f"{tmp_path / 'other.db'}\n")
    with pytest.raises(BudgetRefused, match="was joined to .*other.db, and is an older copy"):
        refuse_known_elsewhere(run, settings, mine, stored_digests(run))
