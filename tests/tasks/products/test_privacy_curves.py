"""What exact curves say of a release, and how the command `budget` tells and draws it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from spineflow.tasks.ledger.accounting import ZCDP, Guarantee
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.privacy_curves import (
    Curves,
    curve_points,
    exact_figures,
)

GEOMETRIC = PrivacyCurve({ChangedCount(IntegerDistribution(Fraction(1, 10), 1)): 20})


def test_an_exact_figure_is_known_or_not_and_infinite_without_noise() -> None:
    promised = Guarantee(ZCDP, Fraction(2))
    plan = UniversePlan("a", "discrete_gaussian", promised, Fraction(2))
    known, unknown = Cost(plan, GEOMETRIC), Cost(plan)
    assert known.exact == GEOMETRIC.epsilon_upper(Fraction(1, 10**10)) < known.epsilons["tight"]
    assert unknown.exact is None
    assert Cost(replace(plan, guarantee=None, loss=None)).exact == "inf"


def test_points_end_where_the_largest_loss_is() -> None:
    points = curve_points(GEOMETRIC)
    assert (points.epsilons < 2).all() and (points.lower <= points.upper).all()
    assert len(points.conversion) == len(points.epsilons) == len(points.upper)


def test_a_certificate_tells_what_is_known_alone() -> None:
    curves = Curves(
        {"a": Fraction(1, 10), "b": Fraction(1)}, {"a": GEOMETRIC, "b": None}, "whether it is there"
    )
    *sentences, tests, chart = exact_figures(curves, ["a"])
    assert "whether it is there" in sentences[1]
    assert "a, exactly, at most" in chart.svg and "b, by rho 1" in chart.svg
    assert "b, exactly" not in chart.svg and "by guessing" in tests.svg
    assert exact_figures(None, []) == exact_figures(Curves({}, {"b": None}, "?"), []) == ()
