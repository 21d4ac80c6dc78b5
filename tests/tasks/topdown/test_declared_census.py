"""Declared censuses: releases keep every declaration, and contradictions are refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import tomli_w
from spineflow.tasks.census.census import compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.ingest.generate import generate_country
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.paths import geography_file, spine_folder
from spineflow.tasks.topdown.spine.files import read_spine

from tests.seeds import covering
from tests.tasks.topdown.declared import load, run_declared
from tests.tasks.topdown.drawn import draw_census

REPOSITORY = Path(__file__).resolve().parents[3]
COUNTRY = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")
FULL = 'estimator = "full_information"'
PEOPLE = """
[census.geography]
table = "areas"
geolevels = ["all", "r", "s"]
[census.attributes]
sex = { column = "sex", levels = { male = ["1"], female = ["2"] } }
[census.universes.people]
table = "people"
attributes = ["sex"]
area = ["r", "s"]
count = "n"
[input]
areas = "areas.csv"
people = "people"
confidential = false
[privacy]
dataset = "p"
infinite = true
[geography]
spine = "conventional"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other = { detailed = "1" }
"""


def truth_of(folder: Path, levels: list[str]) -> pd.DataFrame:
    persons = pd.read_parquet(folder / "persons.parquet")
    dwellings = pd.read_parquet(folder / "dwellings.parquet")
    return persons.merge(dwellings, left_on="home", right_on="id")[[*levels, "kind"]]


@pytest.mark.parametrize(
    ("seed", "estimator"), covering(range(3), ["topdown", "full_information", "block_by_block"])
)
def test_releases_keep_all_that_is_declared(tmp_path: Path, seed: int, estimator: str) -> None:
    """The census of the second seed has exact kinds above its areas."""
    tree = draw_census(tmp_path, seed)
    tree["run"] = {"estimator": estimator}
    if estimator == "block_by_block":
        persons, last = tree["census"]["universes"]["persons"], "area"
        persons["invariants"] = [i for i in persons["invariants"] if i["geolevel"] == last]
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    run, outcomes = run_declared(load(tmp_path / "settings.toml"), tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]

    levels = tree["census"]["geography"]["geolevels"][1:]
    people = pd.read_parquet(run.unchecked_release / "mdf_persons.parquet")
    homes = pd.read_parquet(run.unchecked_release / "mdf_dwellings.parquet")
    declared = tree["census"]["universes"]["persons"]
    truth = truth_of(tmp_path, levels)
    truth["kind"] = "kind " + truth["kind"]
    for invariant in declared["invariants"]:
        geolevel = invariant["geolevel"]
        keys = levels[: levels.index(geolevel) + 1] if geolevel in levels else []
        keys = [*keys, *(["kind"] if invariant["query"] == "kind" else [])]
        if keys:
            pd.testing.assert_series_equal(people.groupby(keys).size(), truth.groupby(keys).size())
        else:
            assert len(people) == len(truth)
    assert not ((people["role"] == "head") & (people["age"] == "0-17")).any()
    n_homes = homes.groupby(levels).size()
    n_people = people.groupby(levels).size().reindex(n_homes.index, fill_value=0)
    assert (n_people <= 4 * n_homes).all()
    roles = people.groupby([*levels, "role"]).size().unstack(fill_value=0)
    roles = roles.reindex(columns=["head", "spouse"], fill_value=0)
    for relation in declared["relations"]:
        if relation["name"] == "spouses_have_heads":
            assert (roles["spouse"] <= roles["head"]).all()
        else:
            occupied = homes[homes["state"] == "occupied"].groupby(levels).size()
            heads = roles["head"][roles["head"] > 0]
            pd.testing.assert_series_equal(heads, occupied, check_names=False, check_dtype=False)
    own = pd.read_parquet(tmp_path / "dwellings.parquet").groupby(levels).size()
    pd.testing.assert_series_equal(n_homes, own)


def test_estimates_from_measurements_take_exact_zeros_above_the_areas(tmp_path: Path) -> None:
    """Kinds that a region has none of are no facts of its areas; estimates add up all the same."""
    tree = draw_census(tmp_path, 1)
    (exact,) = tree["census"]["universes"]["persons"]["invariants"]
    assert exact == {"query": "kind", "geolevel": "province"}
    (tmp_path / "settings.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")
    settings = load(tmp_path / "settings.toml")
    run, _ = run_declared(settings, tmp_path / "run")
    levels = RunPosterior.read(run, settings, "persons").geolevels
    sums = [level.means().sum(axis=0) for level in levels]
    for of_level in sums[1:]:
        np.testing.assert_allclose(of_level, sums[0], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spine", "estimator"),
    [("conventional", "topdown"), ("optimized", "topdown"), ("conventional", "full_information")],
)
def test_tables_without_noise_are_those_of_sql(tmp_path: Path, spine: str, estimator: str) -> None:
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    text = COUNTRY.replace('dataset = "demo-country"', 'dataset = "c"\ninfinite = true')
    text = text.replace('spine = "conventional"', f'spine = "{spine}"')
    text = text.replace(FULL, f'estimator = "{estimator}"')
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    run, outcomes = run_declared(load(tmp_path / "settings.toml"), tmp_path / "run")
    assert not [outcome for outcome in outcomes if not outcome.passed]
    table = pd.read_parquet(run.unchecked_release / "tables" / "AGE_SEX.parquet")
    sql = duckdb.sql(f"""
        select a.region, case p.sex when 'F' then 'female' else 'male' end as sex,
               case when age < 6 then '0-5' when age < 15 then '6-14' when age < 18 then '15-17'
                    when age < 25 then '18-24' when age < 40 then '25-39' when age < 65 then '40-64'
                    when age < 80 then '65-79' else '80-110' end as age, count(*)::bigint as n
        from '{tmp_path}/input/persons.parquet' p
        join '{tmp_path}/input/dwellings.parquet' d on p.dwelling = d.id
        join read_csv('{tmp_path}/input/areas.csv', all_varchar = true) a using (section)
        group by all""").df()
    paths = {"Nord": "Nord", "Süd": "S%C3%BCd", "Île-Ouest": "%C3%8Ele-Ouest", "Est/2": "Est%2F2"}
    sql["code"] = sql["region"].map(paths)
    counted = table[(table["level"] == "region") & (table["count"] > 0)]
    keys = ["code", "sex", "age"]
    pd.testing.assert_series_equal(
        counted.set_index(keys)["count"].sort_index(),
        sql.set_index(keys)["n"].sort_index(),
        check_names=False,
    )
    adults = pd.read_parquet(run.unchecked_release / "tables" / "ADULTS.parquet")
    schools = adults[adults["level"] == "school"].groupby("code")["count"].sum()
    sql = duckdb.sql(f"""
        select a.school, count(*)::bigint as n
        from '{tmp_path}/input/persons.parquet' p
        join '{tmp_path}/input/dwellings.parquet' d on p.dwelling = d.id
        join read_csv('{tmp_path}/input/areas.csv', all_varchar = true) a using (section)
        where age >= 18 group by all""").df()
    pd.testing.assert_series_equal(
        schools, sql.set_index("school")["n"].sort_index(), check_names=False
    )


CLASHES = {
    "a sentence on what there is not": (
        "[census.universes.dwellings]",
        '[[census.certificate]]\nabout = "exact"\nuniverse = "persons"\nname = "n"\ntext = "t"\n'
        'holds = ["state_total"]\n[census.universes.dwellings]',
        "certificate names 'state_total', which is no attribute or invariant of persons",
    ),
    "a level in no group": (
        'levels = { minor = ["0-5", "6-14", "15-17"],',
        'levels = { minor = ["0-5", "6-14"],',
        "coarsening 'adult' leaves out the level '15-17'",
    ),
    "a geolevel that is not declared": (
        'invariants = [{ query = "total", geolevel = "region" }]',
        'invariants = [{ query = "total", geolevel = "State" }]',
        "'State', which is no geolevel",
    ),
    "a share of a geolevel that is not declared": (
        'geolevels = { country = "1/10"',
        'geolevels = { nation = "1/10"',
        "no geolevel (did you mean 'section'?); there are country, region, municipality, section",
    ),
}


@pytest.mark.parametrize("case", CLASHES)
def test_contradictions_are_refused_with_the_names_that_clash(tmp_path: Path, case: str) -> None:
    first, other, message = CLASHES[case]
    assert first in COUNTRY
    text = COUNTRY.replace(first, other)
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputRefused) as refused:
        load(tmp_path / "settings.toml")
    assert message in str(refused.value)


ESTIMATORS = {
    "an invariant above the areas": (
        'estimator = "block_by_block"',
        "cannot hold the invariant 'total at region' of persons at region; choose 'topdown'",
    ),
    "a zero that ties many levels": (
        'estimator = "full_information"\n[[workload.persons.structural_zeros]]\nname = "z"\n'
        'where = { age = ["0-5"], sex = ["male"], citizenship = ["none"], marital = ["married"] }',
        "covariances for every geounit of persons, and can carry 9; choose 'topdown'",
    ),
}


@pytest.mark.parametrize("case", ESTIMATORS)
def test_estimators_refuse_what_they_cannot_hold(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, message = ESTIMATORS[case]
    place = "spineflow.tasks.topdown.estimation.full_information.MOST_COVARIANCES"
    monkeypatch.setattr(place, 9)
    text = COUNTRY.replace(f"[run]\n{FULL}\n", "") + f"[run]\n{more}\n"
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputRefused) as refused:
        load(tmp_path / "settings.toml")
    assert message in str(refused.value)


def test_a_code_of_no_level_is_refused_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    persons = pd.read_parquet(tmp_path / "input" / "persons.parquet")
    persons.loc[5, "citizenship"] = "secret"
    persons.to_parquet(tmp_path / "input" / "persons.parquet")
    (tmp_path / "settings.toml").write_text(COUNTRY, encoding="utf-8")
    with pytest.raises(InputRefused) as refused:
        run_declared(load(tmp_path / "settings.toml"), tmp_path / "run")
    assert "citizenship must have a level" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "estimator", ["topdown", pytest.param("full_information", marks=pytest.mark.slow)]
)
def test_groups_do_not_reach_across_what_has_exact_totals(tmp_path: Path, estimator) -> None:
    """Groups of sections would reach across municipalities; they are formed within them."""
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    text = COUNTRY.replace('geolevel = "region"', 'geolevel = "municipality"')
    text = text.replace('spine = "conventional"', 'spine = "optimized"')
    (tmp_path / "settings.toml").write_text(
        text.replace(FULL, f'estimator = "{estimator}"'), encoding="utf-8"
    )
    settings = load(tmp_path / "settings.toml")
    run, outcomes = run_declared(settings, tmp_path / "run")
    assert all(outcome.passed for outcome in outcomes)
    spine = read_spine(spine_folder(run, "persons"))
    town = read_geography(geography_file(run))["municipality"].to_numpy()[spine.block_row]
    group = spine.ancestors("municipality")
    assert len(np.unique(group)) > len(np.unique(town))
    assert len(pd.DataFrame({"group": group, "town": town}).drop_duplicates()) == len(
        np.unique(group)
    )
    [release] = run.root.rglob("AGE_SEX.parquet")
    table = pd.read_parquet(release)
    released = table[table["level"] == "municipality"].groupby("code")["count"].sum()
    check = check_input_of(settings)
    units = check.result.areas.units["municipality"]
    counts = np.asarray(check.result.histograms["persons"].sum(axis=1)).ravel()
    assert released[units.path].tolist() == np.bincount(units.number, counts).tolist()


def test_an_invariant_that_a_branch_cuts_through_is_refused(tmp_path: Path) -> None:
    """Parts of a municipality inside and outside a branch have different parents."""
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    text = COUNTRY.replace('geolevel = "region"', 'geolevel = "municipality"')
    school = pd.read_csv(tmp_path / "input" / "areas.csv")["school"].iloc[0]
    branch = f'branch = {{ column = "school", codes = ["{school}"] }}\nentities.municipality'
    text = text.replace("entities.municipality", branch)
    (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputRefused, match="total at municipality of persons cannot be held"):
        run_declared(load(tmp_path / "settings.toml"), tmp_path / "run")


@pytest.mark.parametrize(
    "second",
    [
        'query = "total"',
        'query = "sex"\nwhere = { sex = ["male"] }',
        'query = "sex"\nwhere = { sex = ["female"] }\nat_least = 1',
    ],
)
def test_bounds_of_one_name_are_on_different_answers(second: str) -> None:
    bounds = '[[census.universes.people.bounds]]\nname = "homes"\nper = "people"\nat_most = 2\n'
    first = 'query = "sex"\nwhere = { sex = ["male"] }\n'
    text = PEOPLE[: PEOPLE.index("[input]")] + bounds + first + bounds + second
    with pytest.raises(ValueError, match="two bounds 'homes'"):
        compiled(CensusDeclaration.model_validate(tomllib.loads(text)["census"]))
