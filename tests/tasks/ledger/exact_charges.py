"""What a product's charge must tell the ledger of its noise, whatever the product."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import Caps, EpsilonCap, set_caps
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.plan import REPORT_DELTA, UniversePlan
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.noise.distributions import distribution_of
from spineflow.tasks.runs.errors import BudgetRefused


def check_exact_charge(charge_run: Callable[[], object], file: Path, curve: PrivacyCurve) -> None:
    """A cap just below the exact epsilon refuses a run, one just above it does not, and `spineflow
    ledger` tells it. `file` is of a ledger from which nothing else is drawn.
    """
    exact = Fraction(curve.epsilon_upper(REPORT_DELTA))
    ledger = open_ledger(file)
    set_caps(ledger, None, Caps(epsilon=EpsilonCap(exact * Fraction(999, 1000), REPORT_DELTA)))
    with pytest.raises(BudgetRefused, match="at that epsilon with this run"):
        charge_run()
    set_caps(ledger, None, Caps(epsilon=EpsilonCap(exact * Fraction(1001, 1000), REPORT_DELTA)))
    charge_run()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["ledger", "show", "--ledger", str(file), "--json"]) == 0
    (spent,) = json.loads(printed.getvalue())["datasets"].values()
    assert spent["epsilon"]["exact"] == pytest.approx(float(exact), rel=1e-9)
    assert spent["epsilon"]["exact"] < 0.999 * spent["epsilon"]["tight"]


def check_noise_of_curve(draw: UniversePlan) -> None:
    """The curve is of noise that the draw is charged to use, and of no other."""
    assert draw.curve is not None
    charged = {distribution_of(noise) for _, noise in draw.noises}
    counts = [draw.curve.changed, *(own for choice in draw.curve.choices for own in choice)]
    assert {count.noise for own in counts for count in own} <= charged
