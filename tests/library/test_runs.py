"""Runs as data frames: every figure is compared with the residents that it counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import spineflow

from tests.library import towns

AGES = ("child", "adult", "old")
REGIONS = {"N1": "N", "N2": "N", "N3": "N", "S1": "S", "S2": "S", "S3": "S"}


def by_region(counts: pd.Series) -> pd.Series:
    frame = counts.rename("n").reset_index()
    return (
        frame.assign(region=frame["section"].map(REGIONS))
        .groupby(["region", "sex", "age"])["n"]
        .sum()
    )


def test_measurements_count_what_their_labels_say(exact_town: spineflow.Run) -> None:
    """Without noise, those of the country are its counts."""
    truth = towns.true_counts(towns.residents())
    found = exact_town.measurements("country", query="sex * age")
    assert list(found.columns) == [
        *("geolevel", "geocode", "query", "sex", "age", "value", "variance", "plb"),
    ]
    of_country = truth.groupby(["sex", "age"]).sum()
    assert found.set_index(["sex", "age"])["value"].to_dict() == of_country.to_dict()
    minors = exact_town.measurements("country", query="sex * minor")
    by_minor = minors.set_index(["sex", "minor"])["value"]
    assert by_minor["male", "yes"] == of_country["male", "child"]
    assert by_minor["male", "no"] == of_country["male", "adult"] + of_country["male", "old"]
    assert (found["variance"] == 0).all()


def test_intervals_of_own_areas_are_those_of_their_parts_together(
    town_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(town_folder / "run", tmp_path / "run")
    run = spineflow.open_run(tmp_path / "run")
    own = pd.DataFrame({"area": ["mixed", "mixed", "one"], "block": ["N1", "S2", "N3"]})
    found = run.make_intervals("total", areas=own).set_index("geocode")
    sections = run.make_intervals("total", "section").set_index("geocode")["estimate"]
    code = {path.rpartition(".")[2]: value for path, value in sections.items()}
    assert found.loc["mixed", "estimate"] == pytest.approx(code["N1"] + code["S2"])
    assert found.loc["one", "estimate"] == pytest.approx(code["N3"])
    with pytest.raises(spineflow.SpineflowError, match="of no section"):
        run.make_intervals("total", areas=own.assign(block="N9"))


def test_estimates_tables_and_microdata_agree_with_the_input(exact_town: spineflow.Run) -> None:
    truth = towns.true_counts(towns.residents())
    cells = exact_town.estimates("section")
    assert sorted(cells["count"]) == sorted(truth)
    regions = exact_town.estimates("region").groupby(["sex", "age"], observed=True)["count"].sum()
    assert regions.to_dict() == truth.groupby(["sex", "age"]).sum().to_dict()
    table = exact_town.table("AGE_SEX")
    own = table[table["level"] == "region"]
    assert own["count"].sum() == towns.RESIDENTS
    assert sorted(own["count"]) == sorted(by_region(truth))
    records = exact_town.microdata()
    assert records.groupby(["sex", "age"]).size().to_dict() == (
        truth.groupby(["sex", "age"]).sum().to_dict()
    )
    assert exact_town.checks["passed"].all() and (exact_town.stages["status"] == "complete").all()


def test_errors_are_told_of_public_input_alone(
    exact_town: spineflow.Run, town_folder: Path
) -> None:
    assert (exact_town.errors["mean_absolute_error"] == 0).all()
    with pytest.raises(spineflow.SpineflowError, match="confidential, and so are its errors"):
        _ = spineflow.open_run(town_folder / "run").errors


def test_margins_and_intervals_stand_beside_the_counts(town_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(town_folder / "run", tmp_path / "run")
    run = spineflow.open_run(tmp_path / "run")
    margins, table = run.margins("AGE_SEX"), run.table("AGE_SEX")
    assert len(margins) == len(table) and (margins["lower"] <= margins["upper"]).all()
    with pytest.raises(spineflow.SpineflowError, match="No intervals of region were made"):
        run.intervals("region")
    made = run.make_intervals("sex * age", "region")
    pd.testing.assert_frame_equal(made, run.intervals("region"))
    assert len(made) == 12
    inside = (made["lower"] <= made["estimate"]) & (made["estimate"] <= made["upper"])
    assert inside.all() and list(made["age"].unique()) == ["child", "adult", "old"]
    wide = run.make_intervals("sex * age", "region", level=0.999)
    assert ((wide["upper"] - wide["lower"]) > (made["upper"] - made["lower"])).all()


def test_budgets_say_how_wide_the_noise_is(town_folder: Path) -> None:
    run = spineflow.open_run(town_folder / "run")
    budget = run.budget.set_index(["geolevel", "query"])
    assert budget["share"].sum() == pytest.approx(1.0)
    measured = run.measurements("section", query="sex * age")
    # sigma^2 = 1 / (rho * share): rho 1, shares 1/2 and 1/2.
    assert (measured["variance"] == 4.0).all() and set(measured["plb"]) == {"1/4"}
    assert budget.loc[("section", "sex * age"), "std_dev"] == 2.0
    noise = np.abs(
        measured["value"].to_numpy()
        - towns.true_counts(towns.residents())
        .unstack(["sex", "age"])[[(s, a) for s in ("female", "male") for a in AGES]]
        .fillna(0)
        .to_numpy()
        .ravel()
    )
    assert noise.max() < 20 and (noise > 0).any()
    promised = run.guarantee.iloc[0]
    assert (promised["rho"], promised["neighbors"]) == (1.0, "bounded")
    assert promised["epsilon"] > 5
    asked = spineflow.guarantee("topdown", run.path / "settings.toml")
    pd.testing.assert_frame_equal(asked, run.guarantee)


def test_a_run_of_several_products_has_parts(town_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(town_folder / "run", tmp_path / "topdown")
    for name in ("manifest.json", "settings.toml"):
        shutil.copy(tmp_path / "topdown" / name, tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"topdown"', '"products"'))
    with (tmp_path / "settings.toml").open("a") as file:
        file.write("[products.topdown]\n[products.group-sizes]\n")
    whole = spineflow.open_run(tmp_path)
    assert list(whole.parts) == ["topdown"] and whole.parts["topdown"].parts == {}
    assert whole.parts["topdown"].tables == ("AGE_SEX",)
    with pytest.raises(spineflow.SpineflowError, match="run of products, .* open its parts"):
        whole.measurements()


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda run: run.measurements("regin"), "no geolevel 'regin' .did you mean 'region'"),
        (lambda run: run.measurements(universe="people"), "no universe 'people'"),
        (lambda run: run.measurements("region", query="sex*agee"), "no query 'sex.agee' of "),
        (lambda run: run.table("AGE"), "no table 'AGE' .did you mean 'AGE_SEX'"),
        (lambda run: run.margins("AGE"), "no table with margins 'AGE'"),
        (lambda run: run.microdata("homes"), "no microdata 'homes'"),
        (lambda run: run.make_intervals("tenure", "region"), "tenure"),
        (lambda run: spineflow.open_run(run.path / "release"), "holds no run"),
        (lambda run: spineflow.budget("topdwn", {}), "unknown product 'topdwn'"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(town_folder: Path, ask, told: str) -> None:
    run = spineflow.open_run(town_folder / "run")
    with pytest.raises(spineflow.SpineflowError, match=told) as refused:
        ask(run)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_a_stamped_file_reads_like_any_other(exact_town: spineflow.Run, town_folder: Path) -> None:
    """As `spineflow.read_table` reads it, and as pandas does when it is told of the comment."""
    for name in ("mdf_residents", "tables/AGE_SEX"):
        parquet = spineflow.read_table(exact_town.path / f"release/{name}.parquet")
        text = exact_town.path / f"release/{name}.csv"
        assert text.read_text().startswith("# NOT PRIVATE\n")
        read = spineflow.read_table(text)
        assert read.attrs["privacy"] == parquet.attrs["privacy"] == "NOT PRIVATE"
        pd.testing.assert_frame_equal(read, parquet, check_dtype=False)
        delimiter = "|" if "|" in text.read_text() else ","
        plain = pd.read_csv(text, sep=delimiter, comment="#")
        assert list(plain.columns) == list(parquet.columns) and len(plain) == len(parquet)
    private = spineflow.read_table(town_folder / "run/release/mdf_residents.csv")
    assert private.attrs["privacy"] == "private"
