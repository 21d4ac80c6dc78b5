"""The registration of the 2020 redistricting release: its figures, and the texts of its office."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from spineflow.tasks.dissemination.registration import register
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused

from tests.tasks.dissemination.finished_runs import PERSONS, UNITS, finished, plan_of, universe

OFFICE = """
name = "Census of Ruritania"
data_curators = ["Statistics Ruritania"]
intended_use = "Elections."
data_product_region = "Ruritania"
data_domain = "All edited files."
preprocessing_and_hyperparameter_tuning = "On the census before."
justification = "As the law asks."
sources = "None."
registry_authors = ["R. Rassendyll"]
publication_date = 2026-05-01
[assessment]
retention = "Deleted after a year."
"""


def record_of(run: RunDirectory, office: Path | None = None) -> dict[str, Any]:
    return yaml.safe_load(register(run, office).files[0].read_text(encoding="utf-8"))


def test_the_2020_release_is_registered_with_the_figures_of_production(tmp_path: Path) -> None:
    """Rho 2.63 in all, epsilon 17.14 and 2.47 of persons and units at a delta of 1e-10."""
    record = record_of(finished(tmp_path, plan_of(universe("p", PERSONS), universe("u", UNITS))))
    loss = record["deployment"]["privacy_loss"]
    assert round(loss["privacy_parameters"]["rho"], 2) == 2.63
    assert loss["privacy_parameters"]["rho"] >= PERSONS + UNITS
    assert float(loss["privacy_parameters"]["delta"]) == 1e-10
    assert [n in loss["privacy_parameters_details"] for n in ("17.14", "2.47")] == [True, True]
    assert record["deployment"]["dp_variant"]["variant_name"] == "Zero-concentrated DP"


def test_texts_of_the_office_stand_in_record_and_assessment(tmp_path: Path) -> None:
    office = tmp_path / "office.toml"
    office.write_text(OFFICE, encoding="utf-8")
    run = finished(tmp_path / "run", plan_of(universe("persons", PERSONS)))
    named, bare = register(run, office), register(run, None)
    assert named.files[0].name == "census_of_ruritania_2026.yaml"
    record = yaml.safe_load(named.files[0].read_text(encoding="utf-8"))
    assert (record["tier"], record["status"]) == (3, "Draft")
    assert record["deployment"]["basic"]["publication_date"] == "2026-05-01"
    assert not named.missing
    assert {"name", "sources"} <= set(bare.missing)
    assert set(bare.unanswered) - set(named.unanswered) == {"retention"}
    assert "registry_authors" not in bare.files[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ('nmae = "x"', "nmae.*name"),
        ("data_curators = 3", "data_curators"),
        ('url_slug = "A b"', "url_slug"),
        ("name =", "TOML"),
        ('[assessment]\nretenton = "never"', "retenton.*retention"),
    ],
)
def test_what_an_office_cannot_say_is_refused(tmp_path: Path, text: str, refusal: str) -> None:
    office = tmp_path / "office.toml"
    office.write_text(text, encoding="utf-8")
    run = finished(tmp_path / "run", plan_of(universe("persons", PERSONS)))
    with pytest.raises(InputRefused, match=refusal):
        register(run, office)
    assert not (run.root / "registry").exists()


def test_runs_without_a_guarantee_of_their_own_are_refused(tmp_path: Path) -> None:
    plan = plan_of(universe("persons", PERSONS))
    public = replace(plan, statement=replace(plan.statement, why_not="the input may be disclosed"))
    with pytest.raises(InputRefused, match="guarantees nothing"):
        register(finished(tmp_path / "public", public), None)
    with pytest.raises(InputRefused, match="measured nothing"):
        register(finished(tmp_path / "estimate", plan, ledger=None), None)
    with pytest.raises(InputRefused, match="several products.*first"):
        register(finished(tmp_path / "all", plan, certificates={"first": {}}), None)
    with pytest.raises(InputRefused, match=r"no certificate\.json"):
        register(RunDirectory(tmp_path / "nothing"), None)
