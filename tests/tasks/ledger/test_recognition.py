"""People recognised by their raw columns: parts and wholes are, and others never."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.tasks.ledger.recognition import (
    ENOUGH_WEAK,
    InputDigest,
    RecordColumn,
    people_digests,
    raw_value,
)
from spineflow.tasks.ledger.store import Ledger, open_ledger, reading
from spineflow.tasks.runs.errors import BudgetRefused

from tests.recognised import recognises
from tests.tasks.ledger.charged_runs import charge_run

KEY = b"k" * 32
N_AGES, N_SEXES = 100, 2


class People:
    """Persons drawn at random: areas in districts, ages as a population has them, and a sex."""

    def __init__(self, seed: int, n: int = 6000, n_areas: int = 120, n_districts: int = 12) -> None:
        rng = np.random.default_rng(seed)
        # Everyone is drawn from the same population and the same areas: only chance differs.
        shape = np.random.default_rng(0)
        self.district = np.sort(shape.integers(0, n_districts, n_areas))
        self.area = rng.choice(n_areas, n, p=shape.dirichlet(np.full(n_areas, 2.0)))
        self.age = rng.choice(N_AGES, n, p=shape.dirichlet(np.full(N_AGES, 3.0)))
        self.sex = rng.integers(0, N_SEXES, n)

    def of(self, rows: np.ndarray) -> People:
        """These rows, in the same areas."""
        part = object.__new__(People)
        part.district = self.district
        part.area, part.age, part.sex = self.area[rows], self.age[rows], self.sex[rows]
        return part

    def digests(self, *columns: str, key: bytes = KEY, levels: bool = True) -> InputDigest:
        """Of the areas that have somebody, numbered anew."""
        there, area = np.unique(self.area, return_inverse=True)
        sizes = {"age": N_AGES, "sex": N_SEXES}
        found = []
        for name in columns or sizes:
            entries = (np.ones(len(area), dtype=np.int64), (area, getattr(self, name)))
            counts = sparse.coo_array(entries, shape=(len(there), sizes[name]))
            values = [str(value) for value in range(sizes[name])]
            found.append(RecordColumn(sparse.csr_array(counts), values))
        of_people = people_digests(found, [self.district[there]] if levels else [], key)
        return InputDigest(uuid4().hex).recognised_by(of_people, key)


def charged(ledger: Ledger, dataset: str, people: InputDigest) -> None:
    """Charge a run on these people."""
    run_id = f"{people.whole} as {dataset}"
    charge_run(ledger, run_id, dataset=dataset, inputs={"persons": people})


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_people_drawn_alike_are_not_taken_for_each_other(one: int, other: int) -> None:
    """Threat model: other people of the same distribution."""
    if one != other:
        first, second = People(one).digests(), People(other).digests()
        assert not recognises(first, second)
        assert not {*first.parts, *first.weak} & {*second.parts, *second.weak}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.25, 0.9))
def test_a_part_of_the_areas_and_the_whole_recognise_each_other(seed: int, share: float) -> None:
    # Of a tenth of 120 areas chance leaves no part that is whole in one case of twenty.
    """Threat model: the same people under another name."""
    people = People(seed)
    chosen = np.random.default_rng(seed).random(120) < share
    part = people.of(np.flatnonzero(chosen[people.area]))
    for columns in ((), ("age",)):
        whole_digests, of_part = people.digests(*columns), part.digests(*columns)
        assert recognises(whole_digests, of_part)
        assert recognises(of_part, whole_digests)


@pytest.mark.parametrize("column", ["age", "sex"])
def test_one_column_in_common_is_enough(column: str) -> None:
    """Threat model: the same people under another name."""
    people = People(1)
    assert recognises(people.digests(), people.digests(column))
    assert recognises(people.digests(column), people.digests())


def test_areas_that_are_grouped_in_another_way_are_recognised() -> None:
    people = People(1)
    districts = people.of(np.arange(len(people.area)))
    districts.area = people.district[people.area]
    districts.district = np.arange(12)
    assert recognises(people.digests("age"), districts.digests("age"))
    assert recognises(districts.digests("age"), people.digests("age", levels=False))


def test_rows_chosen_by_a_column_are_recognised() -> None:
    """Threat model: the same people under another name."""
    people = People(1, n=200_000, n_areas=1000, n_districts=250)
    women, adults = (people.of(np.flatnonzero(m)) for m in (people.sex == 1, people.age >= 18))
    for chosen in (women, adults):
        assert recognises(people.digests(), chosen.digests())
        assert recognises(chosen.digests(), people.digests())


def test_empty_and_ordinary_areas_recognise_nobody() -> None:
    # A thousand areas of two: people that agree in most of them, for all that it tells.
    """Threat model: other people of the same distribution."""
    few = [People(seed, n=2000, n_areas=1000, n_districts=1000) for seed in (1, 2)]
    first, second = (people.digests("sex", levels=False) for people in few)
    assert not recognises(first, second)
    nobody = RecordColumn(sparse.csr_array((5, 3), dtype=np.int64), ["a", "b", "c"])
    alone = RecordColumn(sparse.csr_array(np.eye(5, 3, dtype=np.int64)), ["a", "b", "c"])
    for column in (nobody, alone):
        ((strong, weak, _),) = people_digests([column], [np.zeros(5, dtype=np.int64)], KEY)
        assert not strong and not weak


def test_without_the_key_nobody_is_recognised() -> None:
    """Threat model: a reader of the ledger without its key."""
    people = People(1)
    assert not recognises(people.digests(), people.digests(key=b"other key" * 3))


def test_the_number_of_digests_does_not_depend_on_the_people() -> None:
    """Threat model: confidential numbers in public counts."""

    def number(people: People) -> int:
        digest = people.digests("age")
        return len({*digest.parts, *digest.weak, *digest.filling})

    assert len(np.unique(People(1).area)) == len(np.unique(People(2, n=60000).area)) == 120
    assert number(People(1)) == number(People(2, n=60000))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sums_by_parts_are_those_of_the_whole(data: st.DataObject) -> None:
    """However a table is cut into entries, and however its areas and rows are ordered."""
    people = People(data.draw(st.integers(0, 1000)), n=3000)
    order = np.random.default_rng(1).permutation(120)
    moved = people.of(np.random.default_rng(2).permutation(3000))
    moved.area = order[moved.area]
    moved.district = np.empty(120, dtype=np.int64)
    moved.district[order] = people.district
    found = people.digests()
    with pytest.MonkeyPatch.context() as patch:
        entries = data.draw(st.integers(50, 3000))
        patch.setattr("spineflow.tasks.ledger.recognition._ENTRIES_AT_ONCE", entries)
        in_parts = moved.digests("age")
    # What needs all entries at once, the counts by value of the finest areas, may be left out.
    assert {*in_parts.parts} <= {*found.parts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spineflow.tasks.ledger.recognition._ENTRIES_AT_ONCE", 1 << 22)
        assert {*moved.digests().parts} == {*found.parts}


def test_values_are_spelled_alike() -> None:
    spelled = [raw_value(text) for text in ("007", " 7", "7", "0", "000", "é ", None, "")]
    assert spelled == ["7", "7", "7", "0", "0", "é", "", ""]


def test_a_ledger_refuses_a_half_under_another_name(tmp_path: Path) -> None:
    people, ledger = People(3), open_ledger(tmp_path / "ledger.db")
    half = people.of(np.flatnonzero(people.area % 2 == 0))
    charged(ledger, "people", people.digests())
    with pytest.raises(BudgetRefused, match='set .privacy. dataset = "people"'):
        charged(ledger, "half", half.digests())
    charged(ledger, "others", People(4).digests())


def test_weak_digests_recognise_together(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.db")
    weak = tuple(f"{n:02d}" for n in range(ENOUGH_WEAK))
    charged(ledger, "people", InputDigest("aa", (), weak))
    charged(ledger, "others", InputDigest("bb", (), (*weak[1:], "cc")))
    with pytest.raises(BudgetRefused, match="people"):
        charged(ledger, "them", InputDigest("dd", (), (*weak, "cc")))
    with reading(ledger) as connection:
        assert connection.execute("SELECT count(*) FROM inputs").fetchone()[0] == 7


def test_people_of_two_datasets_are_refused_under_every_name(tmp_path: Path) -> None:
    """Threat model: the same people under another name."""
    ledger = open_ledger(tmp_path / "ledger.db")
    for name in ("one", "two"):
        charged(ledger, name, InputDigest(name))
    for name in ("one", "both"):
        with pytest.raises(BudgetRefused, match="several datasets, 'one', 'two'"):
            charged(ledger, f"{name}", InputDigest("whole", ("one", "two")))
