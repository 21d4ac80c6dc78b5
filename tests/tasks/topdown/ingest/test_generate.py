from __future__ import annotations

import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.invariants import inhabitable
from spineflow.tasks.topdown.ingest.generate import generate_county

from tests.census_inputs import check_inputs


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
    assert result.totals == {"35": 30_000}
    assert (result.public.filter(like="facilities_").sum() > 0).all()
    assert result.histograms["units"].sum(axis=0)[0] > 1_000
    assert 0.6 < inhabitable(result.public).mean() < 0.9
    by_race = result.histograms["persons"].sum(axis=0).reshape(PERSONS.shape).sum(axis=(0, 1, 2))
    assert by_race[0] > 0.5 * by_race.sum()
    assert (by_race > 0).sum() > 30


@pytest.mark.parametrize("arguments", [{"persons": 10}, {"n_counties": 0}, {"n_counties": 501}])
def test_impossible_counties(arguments, tmp_path):
    with pytest.raises(ValueError, match="count"):
        generate_county(tmp_path, **arguments)
