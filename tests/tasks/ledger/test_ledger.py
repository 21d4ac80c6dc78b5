from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from spineflow.tasks.ledger.accounting import SAFETAB_P, Guarantee
from spineflow.tasks.ledger.caps import Caps, set_caps, summary
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused

from tests.tasks.ledger.charged_runs import charge_run, draw

SPAWN = multiprocessing.get_context("spawn")
"""A fork would keep a lock of SQLite that a thread of another test holds just then."""
N_AT_ONCE = 3


def n_charged(ledger, dataset="ri2010") -> int:
    products = summary(ledger)["datasets"][dataset]["products"]
    return sum(len(product["draws"]) for product in products.values())


@pytest.fixture
def ledger(tmp_path):
    return open_ledger(tmp_path / "ledger.db")


def test_a_draw_for_one_of_several_records_counts_one_and_states_all(ledger) -> None:
    rho = Fraction(1, 2)
    one = Guarantee("zcdp", rho, "bounded_one_of_several", bounded_factor=Fraction(2))
    units = UniversePlan("units", "discrete_gaussian", one)
    assert charge_run(ledger, "run-1", [draw(rho, "units")])
    spent = summary(ledger)["datasets"]["ri2010"]
    assert (spent["rho"], spent["stated_rho"]) == ("1/2", "1/2")
    assert charge_run(ledger, "run-2", [units])
    spent = summary(ledger)["datasets"]["ri2010"]
    assert (spent["rho"], spent["stated_rho"]) == ("1", "3/2")
    with pytest.raises(BudgetRefused, match="charged for draw 'units' with another"):
        charge_run(ledger, "run-2", [draw(rho, "units")])


def test_a_run_that_version_0_3_charged_goes_on(ledger) -> None:
    """It did not enter the stated factor."""
    several = Guarantee("zcdp", Fraction(1), "several_records", bounded_factor=Fraction(2))
    assert charge_run(ledger, draws=[UniversePlan("units", "discrete_gaussian", several)])
    stated = replace(several, stated_factor=Fraction(3))
    units = UniversePlan("units", "discrete_gaussian", stated)
    assert not charge_run(ledger, draws=[units])
    assert charge_run(ledger, "run-2", [units])
    with pytest.raises(BudgetRefused, match="with another stated_factor"):
        charge_run(ledger, "run-2", [UniversePlan("units", "discrete_gaussian", several)])


def test_what_a_killed_maker_of_a_ledger_left_is_removed(tmp_path) -> None:
    left = [tmp_path / "ledger.db.0a0a0a0a.part", tmp_path / "ledger.db.key.0a0a0a0a.part"]
    others = tmp_path / "other.db.0a0a0a0a.part"
    for path in (*left, others):
        path.touch()
    open_ledger(tmp_path / "ledger.db")
    assert not any(path.exists() for path in left)
    assert others.exists()


def begin_together(barrier: Barrier) -> None:
    """Give a process the barrier at which it waits for the others."""
    begin_together.barrier = barrier


def after_others(function: Callable[..., bool], *arguments: Any) -> bool:
    begin_together.barrier.wait()
    return function(*arguments)


@pytest.fixture(scope="module")
def at_once() -> Iterator[Callable[..., list[bool]]]:
    """Function that calls another with a path, and with names if there are any, in processes that
    start their work together."""
    barrier = SPAWN.Barrier(N_AT_ONCE)
    with ProcessPoolExecutor(N_AT_ONCE, SPAWN, begin_together, (barrier,)) as pool:

        def call(function: Callable[..., bool], path: Path, *names: list[str]) -> list[bool]:
            return list(pool.map(partial(after_others, function), [path] * N_AT_ONCE, *names))

        yield call


def charge_within_the_cap(path: Path, run_id: str) -> bool:
    try:
        return charge_run(open_ledger(path), run_id, [draw(Fraction(1, 5))]) or True
    except BudgetRefused:
        return False


def open_as_others_do(path: Path) -> bool:
    open_ledger(path)
    return True


@pytest.mark.slow
def test_of_runs_at_once_as_many_pass_as_the_cap_is_for(ledger, at_once) -> None:
    """Threat model: many runs at once under one cap."""
    set_caps(ledger, "ri2010", Caps(Fraction(1, 2)))
    names = [f"run-{number}" for number in range(N_AT_ONCE)]
    assert sorted(at_once(charge_within_the_cap, ledger.path, names)) == [False, True, True]
    assert n_charged(ledger) == 2
    assert Fraction(summary(ledger)["datasets"]["ri2010"]["rho"]) == Fraction(2, 5)


@pytest.mark.slow
def test_one_run_in_several_processes_is_charged_once(ledger, at_once) -> None:
    assert all(at_once(charge_within_the_cap, ledger.path, ["run-1"] * N_AT_ONCE))
    assert n_charged(ledger) == 1


@pytest.mark.slow
def test_processes_that_start_together_make_one_ledger(tmp_path, at_once) -> None:
    path = tmp_path / "folder" / "ledger.db"
    path.parent.mkdir()
    assert all(at_once(open_as_others_do, path))
    assert sorted(item.name for item in path.parent.iterdir()) == ["ledger.db", "ledger.db.key"]
    assert summary(open_ledger(path))["datasets"] == {}


def charge_and_die(path):
    charge_run(open_ledger(path))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_killed_after_its_charge_resumes_under_it(ledger):
    process = SPAWN.Process(target=charge_and_die, args=(ledger.path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert n_charged(ledger) == 1
    assert charge_run(open_ledger(ledger.path), must_be_charged=True) is False
    assert n_charged(ledger) == 1


def test_key_and_ledger_are_private_files(ledger):
    for path in (ledger.path, ledger.key_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(ledger.key()) == 32
    assert open_ledger(ledger.path).key() == ledger.key()


def test_summary_has_native_and_composed_figures_by_product(ledger):
    charge_run(ledger, "run-1", [draw(), draw(Fraction(1, 8), "units")])
    safetab = Guarantee("zcdp", Fraction(1, 4), "unbounded", bounded_factor=SAFETAB_P)
    charge_run(
        ledger, "run-2", [UniversePlan("us", "discrete_gaussian", safetab)], product="safetab"
    )
    trips = Guarantee("pure_dp", Fraction(1), "bounded", delta=Fraction(1, 10**8))
    charge_run(ledger, "run-3", [UniversePlan("trips", "discrete_laplace", trips)], product="trips")
    set_caps(ledger, "ri2010", Caps(Fraction(2)))
    found = summary(ledger)["datasets"]["ri2010"]
    rhos = {product: Fraction(item["rho"]) for product, item in found["products"].items()}
    assert rhos == {
        "topdown": Fraction(5, 8),
        "safetab": Fraction(1, 2),
        "trips": Fraction(1, 2),
    }
    assert Fraction(found["rho"]) == Fraction(13, 8)
    assert Fraction(found["remaining"]) == Fraction(3, 8)
    assert Fraction(found["delta"]) == Fraction(1, 10**8)
    native = found["products"]["safetab"]["draws"][0]
    assert (native["parameter"], native["neighbors"], native["bounded_rho"]) == (
        "1/4",
        "unbounded",
        "1/2",
    )
    assert found["epsilon"]["tight"] < found["epsilon"]["simple"]


def test_without_a_cap_everything_is_recorded(ledger):
    assert charge_run(ledger, draws=[draw(Fraction(1000))])
    assert summary(ledger)["datasets"]["ri2010"]["cap"] is None


def test_a_charge_may_reach_the_cap_but_not_pass_it(ledger):
    """Threat model: losses and deltas that add up."""
    set_caps(ledger, "ri2010", Caps(Fraction(1)))
    charge_run(ledger, "run-1", [draw(Fraction(1, 3))])
    with pytest.raises(BudgetRefused, match="cap 1, and this run needs 3/4 .*set-cap"):
        charge_run(ledger, "run-2", [draw(Fraction(1, 2)), draw(Fraction(1, 4), "units")])
    assert n_charged(ledger) == 1
    assert charge_run(ledger, "run-3", [draw(Fraction(2, 3))])
    set_caps(ledger, "ri2010", Caps(Fraction(2)))
    assert charge_run(ledger, "run-2", [draw(Fraction(1, 2))])


def test_a_cap_below_what_is_spent_is_refused(ledger):
    charge_run(ledger)
    with pytest.raises(BudgetRefused, match="has spent rho 1/2 .*set it higher"):
        set_caps(ledger, "ri2010", Caps(Fraction(1, 3)))
    set_caps(ledger, "ri2010", Caps(Fraction(1, 2)))


@pytest.mark.parametrize("cap", [0, Fraction(-1), 1.5, True])
def test_a_cap_is_a_positive_exact_fraction(ledger, cap):
    with pytest.raises(InputRefused, match="positive exact fraction"):
        set_caps(ledger, "ri2010", Caps(cap))


def test_known_people_under_another_name_are_refused(ledger):
    """Threat model: the same people under another name."""
    charge_run(ledger)
    for digest in (InputDigest("aa"), InputDigest("cc", ("cc",)), InputDigest("dd", ("bb",))):
        with pytest.raises(BudgetRefused, match='set \\[privacy\\] dataset = "ri2010"'):
            charge_run(ledger, "run-2", dataset="other", inputs={"persons": digest})
    assert list(summary(ledger)["datasets"]) == ["ri2010"]
    assert charge_run(ledger, "run-2", dataset="other", inputs={"persons": InputDigest("ee")})
    assert charge_run(ledger, "run-3", inputs={"persons": InputDigest("bb", ("bb",))})


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"draws": [draw(Fraction(1, 3))]}, "bounded_rho, parameter"),
        ({"inputs": {"persons": InputDigest("zz")}}, "inputs"),
        ({"dataset": "other"}, "dataset"),
        ({"product": "trips"}, "product"),
    ],
)
def test_a_run_is_not_charged_again_for_something_else(ledger, changes, differing):
    charge_run(ledger)
    with pytest.raises(BudgetRefused, match=f"with another {differing}; resume it as it was"):
        charge_run(ledger, **changes)
    assert n_charged(ledger) == 1


def test_a_run_can_be_charged_for_further_draws(ledger):
    charge_run(ledger)
    assert charge_run(ledger, draws=[draw(), draw(Fraction(1, 9), "units")])
    assert n_charged(ledger) == 2


def test_a_run_that_was_charged_needs_its_row(ledger):
    with pytest.raises(BudgetRefused, match="does not hold the charge"):
        charge_run(ledger, must_be_charged=True)


def test_a_key_whose_ledger_was_never_made_gets_one(ledger):
    key = ledger.key()
    ledger.path.unlink()
    assert open_ledger(ledger.path).key() == key


@pytest.mark.parametrize(
    "use", [charge_run, lambda ledger: set_caps(ledger, "d", Caps(Fraction(1)))]
)
def test_a_ledger_with_charges_or_caps_must_stay(ledger, use):
    use(ledger)
    assert stat.S_IMODE(ledger.key_path.stat().st_mode) == 0o600
    ledger.path.unlink()
    with pytest.raises(BudgetRefused, match="was used before and is missing"):
        open_ledger(ledger.path)


def test_a_ledger_missing_after_use_is_refused(ledger, tmp_path):
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    charge_run(ledger)
    ledger.path.unlink()
    with pytest.raises(BudgetRefused, match="was used before and is missing"):
        open_ledger(ledger.path)
    with pytest.raises(BudgetRefused, match="is missing"):
        open_ledger(tmp_path / "never.db", must_exist=True)
    with pytest.raises(BudgetRefused, match="cannot be made or opened"):
        open_ledger(tmp_path / "no_folder" / "never.db", must_exist=True)
    assert not (tmp_path / "never.db").exists()
    with pytest.raises(BudgetRefused, match="cannot be used"):
        charge_run(ledger)


def test_a_missing_open_damaged_or_foreign_key_is_refused(ledger, tmp_path):
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    key = ledger.key_path.read_text()
    ledger.key_path.chmod(0o644)
    with pytest.raises(BudgetRefused, match="chmod it to 0600"):
        open_ledger(ledger.path)
    ledger.key_path.chmod(0o600)
    ledger.key_path.write_text(key[:-9])
    with pytest.raises(BudgetRefused, match=r"ledger\.db\.key (is damaged|cannot be read)"):
        open_ledger(ledger.path)
    ledger.key_path.write_text(open_ledger(tmp_path / "other.db").key().hex())
    with pytest.raises(BudgetRefused, match="another ledger"):
        open_ledger(ledger.path)
    ledger.key_path.unlink()
    with pytest.raises(BudgetRefused, match="key .* cannot be read"):
        open_ledger(ledger.path)


def overwrite_middle(path):
    content = bytearray(path.read_bytes())
    content[5000:20000] = os.urandom(15000)
    path.write_bytes(content)


def by_hand(statement):
    def damage(path):
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a database " * 500),
        lambda path: path.write_bytes(path.read_bytes()[:4096]),
        overwrite_middle,
        by_hand("UPDATE draws SET bounded_rho = '1/100'"),
        by_hand("UPDATE ledger SET key_fingerprint = x'00'"),
        by_hand("UPDATE ledger SET sequence = 'many'"),
        by_hand("DELETE FROM ledger"),
        by_hand("ALTER TABLE draws RENAME COLUMN name TO other"),
        by_hand("CREATE TRIGGER t AFTER INSERT ON draws BEGIN DELETE FROM draws; END"),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=[
        "empty",
        "garbage",
        "truncated",
        "overwritten",
        "contradicts itself",
        "bytes for text",
        "text for a number",
        "without its row",
        "renamed column",
        "with a trigger",
        "folder",
    ],
)
def test_a_damaged_ledger_is_refused(ledger, damage):
    """Threat model: ledger, key or list of ledgers damaged, replaced or open to others."""
    charge_run(ledger)
    damage(ledger.path)
    with pytest.raises(BudgetRefused, match=r"ledger\.db cannot be used .*restore it"):
        charge_run(open_ledger(ledger.path), "run-2")


def test_a_ledger_that_was_analyzed_is_whole(ledger):
    charge_run(ledger)
    by_hand("ANALYZE")(ledger.path)
    charge_run(open_ledger(ledger.path), "run-2")
    assert n_charged(ledger) == 2


def test_whatever_is_overwritten_ends_in_a_sentence_or_a_charge(ledger):
    charge_run(ledger)
    content, key = ledger.path.read_bytes(), ledger.key_path.read_bytes()
    refused = 0
    for seed in range(100):
        generator = random.Random(seed)
        damaged = bytearray(content)
        start = generator.randrange(len(content))
        stretch = damaged[start : start + generator.choice([1, 4, 50, 1000])]
        damaged[start : start + len(stretch)] = generator.randbytes(len(stretch))
        ledger.path.write_bytes(damaged)
        ledger.key_path.write_bytes(key)
        try:
            charge_run(open_ledger(ledger.path), "run-2")
        except BudgetRefused:
            refused += 1
    assert 0 < refused < 100


def without_rights(path, folder_mode, ledger_mode):
    path.chmod(ledger_mode)
    path.parent.chmod(folder_mode)
    if os.getuid() == 0:
        for item in (path, path.parent, path.with_name("ledger.db.key")):
            os.chown(item, 65534, 65534)
        for folder in path.parents[1:]:
            if folder.name.startswith(("test", "popen", "pytest")):
                folder.chmod(0o755)
        os.setgid(65534)
        os.setuid(65534)
    try:
        charge_run(open_ledger(path), "run-2")
    except BudgetRefused:
        os._exit(3)
    os._exit(0)


@pytest.mark.parametrize(
    ("folder_mode", "ledger_mode", "code"),
    [(0o700, 0o600, 0), (0o700, 0o400, 3), (0o500, 0o600, 3)],
)
def test_an_unwritable_ledger_is_refused(tmp_path, folder_mode, ledger_mode, code):
    (tmp_path / "folder").mkdir()
    ledger = open_ledger(tmp_path / "folder" / "ledger.db")
    charge_run(ledger)
    # Whoever has no rights any more cannot import what a new process lacks.
    process = multiprocessing.get_context("fork").Process(
        target=without_rights, args=(ledger.path, folder_mode, ledger_mode)
    )
    process.start()
    process.join()
    ledger.path.parent.chmod(0o700)
    assert process.exitcode == code


def test_a_place_where_no_ledger_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BudgetRefused, match=r"set \[privacy\] ledger to a file"):
        open_ledger(tmp_path / "file" / "ledger.db")


def with_delta(delta: Fraction, name: str = "trips") -> UniversePlan:
    return UniversePlan(name, "discrete_laplace", Guarantee("pure_dp", Fraction(1, 5), delta=delta))


def test_epsilon_is_shown_at_the_whole_delta(ledger):
    """Threat model: losses and deltas that add up."""
    charge_run(ledger, draws=[with_delta(Fraction(9, 20)), with_delta(Fraction(9, 20), "again")])
    found = summary(ledger)["datasets"]["ri2010"]
    assert Fraction(found["delta"]) == Fraction(9, 10)
    assert Fraction(found["epsilon"]["delta"]) == Fraction(9, 10) + Fraction(1, 10**10)


def test_deltas_add_up_to_their_cap_and_not_beyond(ledger):
    """Threat model: losses and deltas that add up."""
    set_caps(ledger, "ri2010", Caps(delta=Fraction(1, 10**6)))
    charge_run(ledger, "run-1", [with_delta(Fraction(6, 10**7))])
    with pytest.raises(BudgetRefused, match="spent delta 6e-07 of its cap 1/1000000"):
        charge_run(ledger, "run-2", [with_delta(Fraction(5, 10**7))])
    assert charge_run(ledger, "run-2", [with_delta(Fraction(4, 10**7))])
    assert charge_run(ledger, "run-3", [draw()])
    with pytest.raises(BudgetRefused, match="has spent delta 1/1000000 .*set it higher"):
        set_caps(ledger, "ri2010", Caps(delta=Fraction(1, 10**7)))


def test_deltas_that_guarantee_nothing_are_refused_without_a_cap(ledger):
    charge_run(ledger, "run-1", [with_delta(Fraction(9, 10))])
    with pytest.raises(BudgetRefused, match="which guarantees nothing"):
        charge_run(ledger, "run-2", [with_delta(Fraction(1, 10))])


def test_a_default_cap_stops_datasets_without_their_own(ledger):
    """Threat model: losses and deltas that add up."""
    set_caps(ledger, None, Caps(Fraction(3, 4)))
    charge_run(ledger, "run-1")
    with pytest.raises(BudgetRefused, match="cap 3/4"):
        charge_run(ledger, "run-2")
    set_caps(ledger, "ri2010", Caps(Fraction(1)))
    assert charge_run(ledger, "run-2")
