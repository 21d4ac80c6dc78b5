"""The mechanism that docs/adding_a_mechanism.md builds works as it is printed there."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from jsonschema import validate
from scipy import stats
from spineflow.flows import registry as flows
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.products.budget import costs_to_json
from spineflow.tasks.products.product import PRODUCTS, product
from spineflow.tasks.runs.errors import CheckFailed, InputRefused

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "adding_a_mechanism.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
AREAS = ("N", "S", "W")
PERSONS = {"N": 700, "S": 300, "W": 0}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The code of the page, in its order, as a module of the package."""
    path = tmp_path_factory.mktemp("page") / "area_counts.py"
    path.write_text("\n\n".join(CODE), encoding="utf-8")
    name = "spineflow.area_counts"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, name, module)
        patched.setitem(PRODUCTS, "area-counts", "area_counts:PRODUCT")
        patched.setitem(flows.MODULES, "area-counts", name)
        spec.loader.exec_module(module)
        yield module


def settings_of(page: ModuleType, folder: Path, **persons: int):
    """Settings of a private run on so many persons by area."""
    area = np.repeat(list(persons), list(persons.values()))
    pd.DataFrame({"area": area}).to_parquet(folder / "persons.parquet")
    text = (
        f'[input]\npersons = "persons.parquet"\nareas = {json.dumps(AREAS)}\n'
        '[privacy]\ndataset = "d"\nledger = "ledger.db"\nrho = "1/2"\n'
    )
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    return page.PRODUCT.load(folder / "settings.toml")


@pytest.fixture(scope="module")
def finished(page: ModuleType, tmp_path_factory: pytest.TempPathFactory):
    """A run of the page's product to its release."""
    folder = tmp_path_factory.mktemp("areas")
    settings = settings_of(page, folder, **PERSONS)
    run = prepare(settings, folder / "run")
    call_stages(run, settings)
    return run, settings


def test_the_mechanism_has_at_most_120_lines() -> None:
    assert len([line for line in "\n".join(CODE).splitlines() if line.strip()]) <= 120


def test_a_run_ends_with_a_checked_release_under_one_charge(finished) -> None:
    run, settings = finished
    table = pq.read_table(run.release / "area_counts.parquet").to_pandas()
    assert table["area"].tolist() == list(AREAS) and (table["margin"] == 3).all()
    assert (abs(table["count"] - list(PERSONS.values())) < 12).all()
    (dataset,) = summary(open_ledger(Path(settings.privacy.ledger)))["datasets"].values()
    assert dataset["rho"] == "1/2" and len(dataset["products"]["area-counts"]["draws"]) == 1
    for name, place in (("plan", run.root / "plan"), ("certificate", run.release)):
        schema = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text(encoding="utf-8"))
        validate(json.loads((place / f"{name}.json").read_text(encoding="utf-8")), schema)
    assert "Noise of persons" in run.report.read_text(encoding="utf-8")
    cost = costs_to_json(product("area-counts").costs(settings))["persons"]
    assert cost["epsilon"]["exact"] < cost["epsilon"]["tight"]


def test_each_check_can_fail(page: ModuleType, finished) -> None:
    run, settings = finished
    file = run.release / "area_counts.parquet"
    table = pq.read_table(file)
    run.release.rename(run.unchecked_release)
    try:
        file = run.unchecked_release / file.name
        rows = table.to_pandas()
        rows.loc[0, "count"] += 1
        rows.to_parquet(file)
        with pytest.raises(CheckFailed, match="not the measured one"):
            page.PRODUCT.check_run(run, settings)
        pq.write_table(table, file)
        dearer = settings.privacy.model_copy(update={"rho": Fraction(2)})
        (outcome,) = page.check_run(run, settings.model_copy(update={"privacy": dearer}))
        assert not outcome.passed and "does not cost" in outcome.detail
    finally:
        run.unchecked_release.rename(run.release)


def test_the_noise_has_the_variance_of_the_plan_and_no_other(page: ModuleType, tmp_path) -> None:
    measure = page.universe_plan(settings_of(page, tmp_path, **PERSONS)).measures[0]
    assert measure.noise.parameter == 2 and 2 / (2 * measure.noise.parameter) == Fraction(1, 2)
    wide = replace(measure.noise, parameter=Fraction(50))
    drawn = UnchargedNoise(SeededRandom(3, "area")).draw(measure.part, wide, 20_000)
    for variance, is_right in ((50.0, True), (55.0, False), (45.0, False)):
        tail = stats.chi2.cdf((drawn.astype(float) ** 2).sum() / variance, df=drawn.size)
        assert (1e-4 < tail < 1 - 1e-4) == is_right


def test_an_unknown_area_is_refused_with_its_column(page: ModuleType, tmp_path: Path) -> None:
    check = page.check_input(settings_of(page, tmp_path, N=2, X=1))
    assert check.result is None and check.findings[0].count == 1
    with pytest.raises(InputRefused, match="area must be one of input.areas"):
        check.accepted()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("step", "tasks/runs/steps.py"),
        ("Product", "tasks/products/product.py"),
        ("Plan", "tasks/products/plan.py"),
        ("TITLES", "flows/registry.py"),
        ("PRODUCTS", "tasks/products/product.py"),
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
