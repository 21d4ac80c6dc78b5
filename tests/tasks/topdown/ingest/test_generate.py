from __future__ import annotations

import pandas as pd
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.cef_tables import check_inputs
from spineflow.tasks.census.invariants import inhabitable
from spineflow.tasks.topdown.ingest.generate import generate_county


@pytest.fixture(scope="module")
def county(tmp_path_factory):
    return generate_county(tmp_path_factory.mktemp("county"))


@pytest.fixture(scope="module")
def result(county):
    return check_inputs(
        persons=county.persons, units=county.units, geography=county.geography
    ).accepted()


@pytest.mark.slow
def test_county_passes_every_check_and_has_what_a_demo_needs(result):
    assert result.state_totals == {"35": 30_000}
    assert (result.invariants.filter(like="facilities_").sum() > 0).all()
    assert result.histograms["units"].sum(axis=0)[0] > 1_000
    assert 0.6 < inhabitable(result.invariants).mean() < 0.9
    by_race = result.histograms["persons"].sum(axis=0).reshape(PERSONS.shape).sum(axis=(0, 1, 2))
    assert by_race[0] > 0.5 * by_race.sum()
    assert (by_race > 0).sum() > 30


def test_areas_cut_across_each_other(result):
    geography = result.geography
    tract = geography["block_geocode"].str[:11]
    group = geography["block_geocode"].str[:12]
    assert tract.nunique() >= 5
    assert group.nunique() >= 2 * tract.nunique()
    for column in ("AIANNHCE", "COUSUBFP", "PLACEFP"):
        assert (geography.groupby(group)[column].nunique() > 1).any()
    inside = geography["AIANNHCE"] != "9999"
    assert geography["AIANNHCE"][inside].between("0001", "4799").all()
    assert geography["PLACEFP"][inside].nunique() > 1
    assert geography["COUSUBFP"][inside].nunique() > 1


def test_detailed_codes_fit_the_race_combination(county):
    persons = pd.read_parquet(county.persons)
    codes = persons[[f"QRACE{i}" for i in range(1, 9)]].apply(lambda column: column.str.strip())
    assert (codes["QRACE1"] != "").all()
    n_races = (
        persons["CENRACE"]
        .astype(int)
        .map(lambda code: 1 + sum(code > bound for bound in (6, 21, 41, 56, 62)))
    )
    n_codes = (codes != "").sum(axis=1)
    assert ((n_codes == n_races) | (n_codes == n_races + 1)).all()
    starts = {"01": "1", "02": "3", "03": "5", "04": "4", "05": "7"}
    for code, start in starts.items():
        assert codes["QRACE1"][persons["CENRACE"] == code].str.startswith(start).all()
    is_hispanic = persons["CENHISP"] == "2"
    assert (persons["QSPAN"][~is_hispanic] == "1000").all()
    assert persons["QSPAN"][is_hispanic].str.startswith("2").all()


@pytest.mark.slow
def test_same_arguments_same_tables(county, tmp_path):
    again = generate_county(tmp_path)
    for one, other in zip(
        (county.persons, county.units, county.geography),
        (again.persons, again.units, again.geography),
        strict=True,
    ):
        assert one.read_bytes() == other.read_bytes()
    other_seed = generate_county(tmp_path / "other", seed=21)
    assert other_seed.persons.read_bytes() != county.persons.read_bytes()


@pytest.mark.slow
def test_several_counties_of_another_state(tmp_path):
    files = generate_county(tmp_path, persons=500, n_counties=3, state="44")
    result = check_inputs(
        persons=files.persons, units=files.units, geography=files.geography
    ).accepted()
    assert result.state_totals == {"44": 1_500}
    counties = result.geography["block_geocode"].str[:5]
    assert counties.unique().tolist() == ["44001", "44003", "44005"]


@pytest.mark.parametrize("arguments", [{"persons": 10}, {"n_counties": 0}, {"n_counties": 501}])
def test_impossible_counties(arguments, tmp_path):
    with pytest.raises(ValueError, match="count"):
        generate_county(tmp_path, **arguments)
