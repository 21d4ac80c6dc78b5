"""Caps of epsilon at a delta: what they let pass before and after results, and what they refuse."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger.accounting import Guarantee, epsilon_tight, rho_from_epsilon_tight
from spineflow.tasks.ledger.caps import Caps, EpsilonCap, caps_of, set_caps, summary
from spineflow.tasks.ledger.charging import claim, record_publication
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.joining import join
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.ledger.plan import REPORT_DELTA, UniversePlan
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import Ledger, open_ledger, reading
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused

from tests.tasks.ledger import charged_runs

DELTA = Fraction(1, 10**10)
HERE = "the one directory"


def curve_of(n_counts: int) -> PrivacyCurve:
    """Of so many counts of which each has rho 1/16."""
    return PrivacyCurve({ChangedCount(IntegerDistribution(Fraction(1, 16), 2)): n_counts})


def draw(n_counts: int = 8, name: str = "persons", *, is_known: bool = True) -> UniversePlan:
    curve = curve_of(n_counts)
    guarantee = Guarantee("zcdp", curve.rho)
    return UniversePlan(name, "discrete_gaussian", guarantee, curve=curve if is_known else None)


def charge_run(ledger: Ledger, run_id: str, *draws: UniversePlan, dataset: str = "d") -> bool:
    people = {"persons": InputDigest(f"of {dataset} in {ledger.path.name}")}
    asked = {"dataset": dataset, "inputs": people, "directory": (HERE, None)}
    return charged_runs.charge_run(ledger, run_id, draws or [draw()], **asked)


def publish(ledger: Ledger, run_id: str) -> None:
    claimed = claim(ledger, run_id=run_id, identity=HERE, name="file", draw="persons")
    record_publication(ledger, claimed, "digest")


def between(n_counts: int) -> EpsilonCap:
    """A cap that so many counts keep by their curve, and not by their rho."""
    exact = Fraction(curve_of(n_counts).epsilon_upper(DELTA)) * Fraction(1001, 1000)
    assert exact < epsilon_tight(curve_of(n_counts).rho, DELTA) * 0.99
    return EpsilonCap(exact, DELTA)


def rows(ledger: Ledger) -> dict[str, list[tuple]]:
    with sqlite3.connect(ledger.path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema")]
        found = {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in tables
            if not name.startswith(("sqlite", "draws_of"))
        }
    connection.close()
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path / "ledger.db")


def test_before_results_the_curve_of_all_runs_counts(ledger: Ledger) -> None:
    set_caps(ledger, "d", Caps(epsilon=between(16)))
    charge_run(ledger, "run-1")
    charge_run(ledger, "run-2")
    before = rows(ledger)
    with pytest.raises(
        BudgetRefused,
        match=r"spent rho 1 under a cap of epsilon .* at delta 1e-10: all draws would have delta "
        r".*e-10 at that epsilon with this run; lower its rho, or raise the cap with .*set-cap",
    ):
        charge_run(ledger, "run-3", draw(1))
    assert rows(ledger) == before
    found = summary(ledger, is_exact=True)["datasets"]["d"]
    assert found["epsilon"]["exact"] == curve_of(16).epsilon_upper(REPORT_DELTA)
    assert found["epsilon"]["exact"] < found["epsilon"]["tight"]
    assert summary(ledger)["datasets"]["d"]["epsilon"]["exact"] is None


def test_after_results_rho_counts(ledger: Ledger) -> None:
    """Whoever has seen a result may choose by it, of which curves know nothing.

    Threat model: runs chosen by earlier results.
    """
    cap = between(16)
    set_caps(ledger, "d", Caps(epsilon=cap))
    charge_run(ledger, "run-1")
    publish(ledger, "run-1")
    before = rows(ledger)
    left = float(rho_from_epsilon_tight(cap.epsilon, DELTA) - Fraction(1, 2))
    with pytest.raises(BudgetRefused, match=rf"needs rho 0.5 of the {left:.6g} left"):
        charge_run(ledger, "run-2")
    assert rows(ledger) == before
    assert charge_run(ledger, "run-2", draw(6))
    # What was charged before goes on.
    assert not charge_run(ledger, "run-1")


def test_a_first_run_beyond_the_conversion_is_the_last(ledger: Ledger) -> None:
    set_caps(ledger, "d", Caps(epsilon=between(16)))
    charge_run(ledger, "run-1", draw(16))
    publish(ledger, "run-1")
    with pytest.raises(BudgetRefused, match="needs rho 0.0625 of the 0 left; lower its rho, or"):
        charge_run(ledger, "run-2", draw(1))
    set_caps(ledger, "d", Caps(epsilon=between(16)))
    set_caps(ledger, "d", Caps(epsilon=EpsilonCap(Fraction(20), DELTA)))
    assert charge_run(ledger, "run-2", draw(1))


def test_of_runs_that_were_planned_the_curve_counts_after_results(ledger: Ledger) -> None:
    """Threat model: runs chosen by earlier results."""
    set_caps(ledger, "d", Caps(epsilon=replace(between(16), planned=True)))
    charge_run(ledger, "run-1")
    publish(ledger, "run-1")
    assert charge_run(ledger, "run-2")
    with pytest.raises(BudgetRefused, match="of runs planned beforehand: all draws would have"):
        charge_run(ledger, "run-3", draw(1))


def test_other_people_s_results_do_not_count(ledger: Ledger) -> None:
    set_caps(ledger, None, Caps(epsilon=between(8)))
    charge_run(ledger, "run-1", dataset="other")
    publish(ledger, "run-1")
    assert charge_run(ledger, "run-2")


def test_a_draw_without_a_curve_counts_by_its_rho(ledger: Ledger) -> None:
    set_caps(ledger, "d", Caps(epsilon=between(8)))
    with pytest.raises(BudgetRefused, match="noise is not known, rho counts by its conversion"):
        charge_run(ledger, "run-1", draw(is_known=False))
    assert charge_run(ledger, "run-1", draw(7, is_known=False))


def test_draws_of_version_0_1_count_by_rho(ledger: Ledger) -> None:
    """Neither their curves are known, nor whether they followed on results."""
    charge_run(ledger, "run-1", draw())
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("UPDATE draws SET after_results = NULL")
        connection.execute("DELETE FROM curves")
    connection.close()
    cap = between(16)
    with pytest.raises(
        BudgetRefused, match="has spent rho 0.5 and delta 0; a cap of epsilon .* is"
    ):
        set_caps(ledger, "d", Caps(epsilon=between(8)))
    set_caps(ledger, "d", Caps(epsilon=replace(cap, planned=True)))
    with pytest.raises(BudgetRefused, match="rho counts by its conversion"):
        charge_run(ledger, "run-2")
    assert not charge_run(ledger, "run-1")
    with pytest.raises(BudgetRefused, match="rho counts by its conversion"):
        charge_run(ledger, "run-2")


def test_own_deltas_are_kept_apart_from_the_cap(ledger: Ledger) -> None:
    cap = EpsilonCap(Fraction(12), DELTA)
    own = UniversePlan("trips", "laplace", Guarantee("pure_dp", Fraction(1), delta=DELTA / 4))
    set_caps(ledger, "d", Caps(epsilon=cap))
    charge_run(ledger, "run-1")
    publish(ledger, "run-1")
    with pytest.raises(BudgetRefused, match="no delta is kept for this run's own, 2.5e-11; set a"):
        charge_run(ledger, "run-2", own)
    set_caps(ledger, "d", Caps(delta=DELTA / 2))
    assert charge_run(ledger, "run-2", own)
    with pytest.raises(BudgetRefused, match="left"):
        charge_run(ledger, "run-3", draw(16))
    set_caps(ledger, "d", Caps(delta=DELTA))
    with pytest.raises(BudgetRefused, match="needs rho 0.0625 of the 0 left"):
        charge_run(ledger, "run-3", draw(1))


def test_a_new_cap_stands_beside_the_delta_that_is_kept(ledger: Ledger) -> None:
    cap = EpsilonCap(Fraction(12), DELTA)
    set_caps(ledger, "d", Caps(delta=DELTA))
    charge_run(ledger, "run-1")
    publish(ledger, "run-1")
    charge_run(ledger, "run-2")
    with pytest.raises(BudgetRefused, match="is below that, so set it higher"):
        set_caps(ledger, "d", Caps(epsilon=cap))
    set_caps(ledger, "d", Caps(delta=DELTA / 2, epsilon=cap))


def test_every_cap_holds_by_itself(ledger: Ledger) -> None:
    set_caps(ledger, "d", Caps(Fraction(3, 4), epsilon=between(16)))
    charge_run(ledger, "run-1")
    with pytest.raises(BudgetRefused, match="spent rho 0.5 of its cap 3/4"):
        charge_run(ledger, "run-2")


@pytest.mark.parametrize(
    "cap",
    [EpsilonCap(Fraction(0), DELTA), EpsilonCap(Fraction(1), Fraction(-1)), EpsilonCap(1.5, DELTA)],
)
def test_a_cap_of_epsilon_is_of_positive_fractions(ledger: Ledger, cap: EpsilonCap) -> None:
    with pytest.raises(InputRefused, match="positive exact fraction"):
        set_caps(ledger, "d", Caps(epsilon=cap))


@pytest.mark.parametrize("text", ["1", "1@2", "0@1/2", "1@1/2 perhaps", "x@1/2", ""])
def test_a_cap_that_none_is_written_as_is_damage(ledger: Ledger, text: str) -> None:
    set_caps(ledger, "d", Caps(Fraction(1)))
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("UPDATE datasets SET epsilon_cap = ?", [text])
    connection.close()
    with pytest.raises(BudgetRefused, match="a cap.*restore it"):
        charge_run(ledger, "run-1")


@pytest.mark.parametrize(
    "text", ["{}", '{"kinds": [[2, "9", 1]], "changed": [[0, 9]], "choices": []}']
)
def test_a_curve_that_was_not_charged_is_damage(ledger: Ledger, text: str) -> None:
    charge_run(ledger, "run-1")
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("UPDATE curves SET curve = ?", [text])
    connection.close()
    with pytest.raises(BudgetRefused, match="the curve of draw 'persons' of run run-1"):
        summary(ledger)


def test_joined_ledgers_keep_what_both_allow(ledger: Ledger, tmp_path: Path) -> None:
    """Neither knew what was published under the other."""
    other = open_ledger(tmp_path / "other.db")
    set_caps(ledger, "d", Caps(epsilon=EpsilonCap(Fraction(9), DELTA, planned=True)))
    set_caps(other, "d", Caps(epsilon=EpsilonCap(Fraction(10), DELTA / 10, planned=True)))
    set_caps(other, "e", Caps(epsilon=EpsilonCap(Fraction(7), DELTA)))
    for number, each in enumerate((ledger, other)):
        charge_run(each, f"run-{number}")
    charge_run(other, "run-2", dataset="e")
    joined = join(ledger.path, other.path)
    with reading(joined) as connection:
        assert caps_of(connection, "d") == Caps(
            epsilon=EpsilonCap(Fraction(9), DELTA / 10, planned=True)
        )
        assert caps_of(connection, "e").epsilon == EpsilonCap(Fraction(7), DELTA)
        known = connection.execute("SELECT run_id, after_results FROM draws ORDER BY run_id")
        assert [tuple(row) for row in known] == [("run-0", 1), ("run-1", 1), ("run-2", 0)]
    found = summary(joined, is_exact=True)["datasets"]["d"]
    assert found["epsilon"]["exact"] == curve_of(16).epsilon_upper(REPORT_DELTA)
    assert found["epsilon_cap"] == {"epsilon": "9", "delta": "1/100000000000", "planned": True}
