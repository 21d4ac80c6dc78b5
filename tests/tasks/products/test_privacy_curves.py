"""What exact curves say of a release, and how the command `budget` tells and draws it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.accounting import ZCDP, Guarantee
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.pages.numbers import shown_bound
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.privacy_curves import (
    Curves,
    curve_points,
    exact_epsilons,
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
    table, *sentences, tests, chart = exact_figures(curves, exact_epsilons(curves))
    assert [row[0] for row in table.rows] == ["a"] and "added" not in table.headers
    assert "whether it is there" in sentences[1]
    assert "a, exactly, at most" in chart.svg and "b, by rho 1" in chart.svg
    assert "b, exactly" not in chart.svg and "by guessing" in tests.svg
    assert exact_figures(None, {}) == exact_figures(Curves({}, {"b": None}, "?"), {}) == ()


@pytest.fixture
def group_sizes(tmp_path: Path) -> Path:
    (tmp_path / "sizes.csv").write_text("region,size,count\na,1,5\nb,2,7\n")
    (tmp_path / "regions.csv").write_text(
        "level,region,parent\nnation,n,\nregion,a,n\nregion,b,n\n"
    )
    file = tmp_path / "settings.toml"
    file.write_text(
        '[input]\nsizes = "sizes.csv"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
        '[mechanism]\nname = "chain_dp"\nlargest_quantity = 2\n'
        '[privacy]\ndataset = "d"\nledger = "l.db"\nrho = "1/2"\n'
    )
    return file


def test_the_command_tells_and_draws_it_of_other_products(group_sizes: Path, capsys) -> None:
    drawing = group_sizes.parent / "curve.svg"
    assert main(["budget", "group-sizes", str(group_sizes), "--json"]) == 0
    epsilon = json.loads(capsys.readouterr().out)["groups"]["epsilon"]
    assert 0 < epsilon["exact"] < epsilon["tight"] < epsilon["simple"]
    assert main(["budget", "group-sizes", str(group_sizes), "--curve", str(drawing)]) == 0
    shown = capsys.readouterr().out
    assert f"exactly {shown_bound(epsilon['exact'])} at" in shown
    assert "whether this one is in a group or in none" in shown.replace("\n", " ")
    labels = "".join(ElementTree.parse(drawing).getroot().itertext())
    assert "groups, by rho 0.5" in labels and "groups, exactly, at most" in labels


def test_no_curve_is_drawn_where_there_is_none(group_sizes: Path, capsys) -> None:
    drawing = group_sizes.parent / "curve.svg"
    bare = ["--set", "privacy.infinite=true", "--set", "input.confidential=false"]
    asked = ["budget", "group-sizes", str(group_sizes), *bare]
    assert main([*asked, "--curve", str(drawing)]) == 2 and not drawing.exists()
    capsys.readouterr()
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"]["epsilon"]["exact"] == "inf"
