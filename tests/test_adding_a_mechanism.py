"""The mechanism that docs/adding_a_mechanism.md builds works as it is printed there."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats
from spineflow.tasks.noise.randomness import SeededRandom
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import refuse_in

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "adding_a_mechanism.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The code of the page, in its order, as one module."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("page") / "region_totals_page.py"
    path.write_text("\n\n".join(blocks), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings_of(page: ModuleType, **privacy):
    return page.RegionTotalsSettings.model_validate(
        {
            "input": {"persons": "p", "regions": ("a", "b", "c"), "confidential": False},
            "privacy": {"dataset": "d", "rho": "1/2", **privacy},
        }
    )


def test_the_example_of_the_page_runs(page: ModuleType) -> None:
    assert set(page.regions) == {"N", "S"}
    assert sum(page.regions.values()) == page.country
    assert abs(page.country - 1000) < 30


def test_estimates_are_the_nearest_integers_that_add_up(page: ModuleType) -> None:
    for noisy in itertools.product(range(-3, 5), repeat=3):
        for total in range(6):
            x = page.shared_out(total, np.array(noisy))
            assert x.sum() == total and x.min() >= 0
            best = min(
                sum((y - n) ** 2 for y, n in zip(candidate, noisy, strict=True))
                for candidate in itertools.product(range(total + 1), repeat=3)
                if sum(candidate) == total
            )
            assert ((x - noisy) ** 2).sum() == best


def test_the_noise_has_the_variance_of_the_plan_and_no_other(page: ModuleType) -> None:
    region = page.plan_of(settings_of(page))[1]
    assert region.sigma_squared == Fraction(8, 3)
    level = page.Level("region", tuple(map(str, range(20_000))), Fraction(1), Fraction(50))
    noisy = page.measure_level(level, np.zeros(20_000), SeededRandom(3, "region"))
    for variance, is_right in ((50.0, True), (55.0, False), (45.0, False)):
        tail = stats.chi2.cdf((noisy.astype(float) ** 2).sum() / variance, df=noisy.size)
        assert (1e-4 < tail < 1 - 1e-4) == is_right


def test_the_plan_costs_the_budget(page: ModuleType) -> None:
    settings = settings_of(page)
    noise = [level.sigma_squared for level in page.plan_of(settings)]
    assert page.check_loss(settings.privacy.rho, noise) == []
    assert page.check_loss(settings.privacy.rho, [noise[0], noise[1] / 2])
    assert page.guarantee_of(settings).bounded_rho == Fraction(1, 2)


@pytest.mark.parametrize(
    ("country", "regions", "is_right"),
    [(3, [1, 2], True), (3, [1, 1], False), (0, [1, -1], False), (-1, [-1], False)],
)
def test_checks_can_fail(page: ModuleType, country: int, regions: list[int], is_right) -> None:
    assert (page.check_totals(country, regions) == []) == is_right


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"shares": {"country": "1/2", "region": "1/3"}}, "must sum to exactly 1"),
        ({"shares": {"region": "1"}}, "needs the levels"),
        ({"rho": "0"}, "must be a positive fraction"),
    ],
)
def test_settings_that_do_not_fit_are_refused(page, privacy, message) -> None:
    with pytest.raises(InputRefused, match=message):
        settings_of(page, **privacy).refuse_what_does_not_fit(refuse_in("settings.toml"))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("single_draw", "tasks/ledger/charging.py"),
        ("step", "tasks/runs/steps.py"),
        ("Outcome", "validation/outcome.py"),
        ("Product", "tasks/products/product.py"),
        ("Plan", "tasks/products/plan.py"),
        ("TITLES", "flows/registry.py"),
        ("PRODUCTS", "tasks/products/registry.py"),
        ("PRODUCTS", "tests/test_architecture.py"),
    ],
)
def test_what_the_page_points_at_is_there(name: str, place: str) -> None:
    assert f"`{name}`" in PAGE and f"`{place}`" in PAGE
    body = ast.parse((ROOT / place).read_text(encoding="utf-8")).body
    defined = {getattr(node, "name", None) for node in body}
    defined |= {target.id for node in body for target in getattr(node, "targets", ())}
    defined |= {n.target.id for n in body if isinstance(n, ast.AnnAssign)}
    assert name in defined
