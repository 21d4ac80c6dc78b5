"""Replicates of a product on data that may be disclosed, and what they are compared with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.flows.registry import REPLICATED
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.products.registry import OF_ONE_INPUT, product
from spineflow.tasks.study.trials import mean_errors

from tests.flows.small_runs import settings_files


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    generate_specification(tmp_path / "params", detailed=6, ethnicities=2)
    codes = list(read_specification(str(tmp_path / "params")).names)
    generate_persons(tmp_path / "data", codes, persons=400, tracts=3)
    file = tmp_path / "settings.toml"
    file.write_text(
        '[input]\nparameters = "params"\ndata = "data"\nconfidential = false\n'
        '[privacy]\ndataset = "d"\n'
    )
    return file


def test_every_product_that_has_figures_has_replicates() -> None:
    """Topdown, whose figures stand in a file of their own, has a search for that."""
    assert set(REPLICATED) == {name for name in OF_ONE_INPUT if product(name).accuracy.figures}


@pytest.mark.soak(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error"),
    [("detailed-households", "mean_absolute_error"), ("supplemental-dhc", "rmse")],
)
def test_products_of_households_have_the_errors_of_their_rows(
    name: str, error: str, tmp_path: Path
) -> None:
    file = settings_files(tmp_path)[name]
    file.write_text(file.read_text().replace("[input]\n", "[input]\nconfidential = false\n"))
    out = tmp_path / "out"
    command = ["replicates", name, str(file), "--replicates", "2", "--out", str(out)]
    assert main(command) == 0
    assert [path.name for path in out.iterdir()] == ["errors.csv"]
    errors = pd.read_csv(out / "errors.csv")
    figures = list(product(name).accuracy.figures.words)
    assert not errors.duplicated(list(product(name).accuracy.figures.keys)).any()
    assert (errors[error].dropna() > 0).any()
    assert {f"{figure}, s.d." for figure in figures} <= set(errors)


def test_confidential_input_is_refused(groups: Path, tmp_path: Path, capsys) -> None:
    groups.write_text(groups.read_text().replace("confidential = false\n", ""))
    out = tmp_path / "out"
    assert main(["replicates", "detailed-groups", str(groups), "--out", str(out)]) == 2
    assert "no ledger records" in capsys.readouterr().err
    assert not out.exists()


def test_means_are_taken_row_by_row() -> None:
    both = pd.DataFrame({"level": [1, 2, 2, 1], "error": [1, 5, 7, None]})
    found = mean_errors(both, ["level"], ["error"], ("std", "s.d.")).set_index("level")
    assert found["error"].to_dict() == {1: 1.0, 2: 6.0}
    assert found.loc[2, "error, s.d."] == pytest.approx(2**0.5)
