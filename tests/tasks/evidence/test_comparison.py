"""A comparison from its people to its page: tables, figures, and what is released of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.evidence.ingest import (
    Draw,
    figures_file,
    levels_of,
    population_of,
    tables_file,
)
from spineflow.tasks.evidence.methods.publish import (
    draws_of,
    neighbour_tables,
    read_figures,
    read_tables,
)
from spineflow.tasks.evidence.release import read_evidence
from spineflow.tasks.evidence.settings import EvidenceSettings
from spineflow.tasks.runs.directory import RunDirectory

Compared = tuple[RunDirectory, EvidenceSettings]
LEVELS = {"sex": ["female", "male"], "age": ["a", "b", "c"], "kind": ["x", "y", "z"]}
KEYS = ["level", "measure", "group"]


def counts(people: pd.DataFrame, level: str, *attributes: str) -> np.ndarray:
    """Residents of each area of a level by the levels of attributes, counted one by one."""
    areas = sorted(people[level].unique())
    own = people.assign(sex=people["sex"].map({"f": "female", "m": "male"}))
    shape = [len(areas), *(len(LEVELS[name]) for name in attributes)]
    found = np.zeros(shape, dtype=int)
    for row in own.to_dict("records"):
        place = [LEVELS[name].index(row[name]) for name in attributes]
        found[(areas.index(row[level]), *place)] += 1
    return found.reshape(len(areas), -1)


def published(compared: Compared, method: str, strength: int = 0, number: int = 1):
    run, settings = compared
    asked = population_of(run, settings).tables
    return read_tables(tables_file(run, Draw(method, strength, number)), asked)


def test_without_protection_tables_are_the_counts(compared: Compared, people: pd.DataFrame) -> None:
    tables = published(compared, "as_is")
    assert set(tables) == {
        *(("AGE_SEX", "region"), ("AGE_SEX", "section")),
        *(("KINDS", "region"), ("KINDS", "section")),
    }
    for level in ("region", "section"):
        for name, attributes in (("AGE_SEX", ("sex", "age")), ("KINDS", ("kind",))):
            own = tables[name, level]
            assert (own.value == counts(people, level, *attributes)).all()
            assert (own.low == own.value).all() and (own.high == own.value).all()


def test_protected_tables_keep_what_their_methods_keep(
    compared: Compared, people: pd.DataFrame
) -> None:
    true = counts(people, "section", "sex", "age")
    rounded = published(compared, "rounding", 1)["AGE_SEX", "section"].value
    assert (rounded % 10 == 0).all() and (abs(rounded - true) <= 5).all()
    ranges = published(compared, "ranges")["AGE_SEX", "section"]
    small = (true > 0) & (true < 4)
    assert (ranges.value[~small] == true[~small]).all() and small.any()
    assert (ranges.low[small] == 1).all() and (ranges.high[small] == 3).all()
    withheld = published(compared, "without_cells")["AGE_SEX", "section"].value
    few = (true > 0) & (true < 3)
    assert np.isnan(withheld[few]).all() and few.any()
    assert (withheld[~np.isnan(withheld)] == true[~np.isnan(withheld)]).all()
    keys = published(compared, "keys")
    for name in ("AGE_SEX", "KINDS"):
        whole, parts = keys[name, "region"].value, keys[name, "section"].value
        assert (whole == parts.reshape(2, 3, -1).sum(axis=1)).all(), "regions are made of sections"
    assert (keys["AGE_SEX", "section"].value != true).any()
    swapped = published(compared, "swapping")["AGE_SEX", "section"].value
    assert (swapped.sum(axis=1) == true.sum(axis=1)).all() and (swapped != true).any()
    private = published(compared, "private")["AGE_SEX", "section"]
    assert (private.value != true).any()
    assert (private.low == 0).all() and np.isinf(private.high).all(), "noise has no largest value"


def test_controlled_tables_are_multiples_near_the_counts_and_so_are_their_sums(
    compared: Compared, people: pd.DataFrame
) -> None:
    for name, attributes in (("KINDS", ("kind",)), ("AGE_SEX", ("sex", "age"))):
        own = published(compared, "controlled")[name, "section"].value
        true = counts(people, "section", *attributes)
        assert (own % 3 == 0).all() and (abs(own - true) < 3).all()
        # Those of the three sections of a region, cell by cell.
        sums, true_sums = (values.reshape(2, 3, -1).sum(axis=1) for values in (own, true))
        assert (abs(sums - true_sums) < 3).all()


def test_primary_cells_are_those_below_the_threshold(
    compared: Compared, people: pd.DataFrame
) -> None:
    run, _ = compared
    own = [
        counts(people, level, *attributes)
        for level in ("region", "section")
        for attributes in (("sex", "age"), ("kind",))
    ]
    n_primary = sum(int(((values > 0) & (values < 3)).sum()) for values in own)
    rows = read_figures(figures_file(run, Draw("without_cells", 0, 1), "accuracy"))
    found = {row[1]: row[3] for row in rows}
    assert found["primary cells"] == n_primary > 0
    assert found["primary cells verified by linear programs"] == n_primary
    assert found["primary cells with too narrow an interval"] == 0


def test_every_release_is_of_a_strength_and_a_random_one_of_several_draws(
    compared: Compared,
) -> None:
    _, settings = compared
    assert [str(draw) for draw in draws_of(settings)] == [
        *("as_is-1-1", "rounding-1-1", "rounding-2-1", "controlled-1-1", "ranges-1-1"),
        *("merging-1-1", "without_cells-1-1", "swapping-1-1", "swapping-1-2"),
        *("keys-1-1", "keys-1-2", "private-1-1", "private-1-2"),
    ]
    first, second = (published(compared, "private", number=n) for n in (1, 2))
    assert (first["KINDS", "region"].value != second["KINDS", "region"].value).any()


def test_the_population_has_the_people_and_the_areas_of_every_level(
    compared: Compared, people: pd.DataFrame
) -> None:
    run, settings = compared
    found = population_of(run, settings)
    assert levels_of(settings) == ["region", "section"]
    assert len(found.people) == len(people)
    assert np.bincount(found.people.area).tolist() == people.groupby("section").size().tolist()
    assert sorted(np.bincount(found.people.household)) == sorted(people.groupby("home").size())
    section = next(table.places for table in found.tables if table.places.level == "section")
    assert section.parent_level == "region" and section.parent.tolist() == [0, 0, 0, 1, 1, 1]
    region = next(table.places for table in found.tables if table.places.level == "region")
    assert region.parent_level is None and region.parent.tolist() == [-1, -1]
    assert [places.level for places in found.regions] == ["region", "section"]
    assert not found.agree.any()
    kinds = np.bincount(found.risk[found.people.cell])
    assert kinds.tolist() == people["kind"].value_counts()[["x", "y", "z"]].tolist()


def test_baselines_and_ceilings_stand_beside_every_attack(compared: Compared) -> None:
    """A baseline is that of the first release; the ceiling is what true tables give."""
    run, settings = compared
    table = read_evidence(run)
    assert not table["measure"].str.startswith("baseline of ").any()
    baselines, ceilings = (
        table[table["method"] == name].set_index(KEYS)["value"] for name in ("baseline", "ceiling")
    )
    assert baselines.index.is_unique and len(baselines) > 5
    first = Draw("as_is", 0, 1)
    for attack in settings.evidence.attacks:
        for level, measure, group, value, *_ in read_figures(figures_file(run, first, attack)):
            if measure.startswith("baseline of "):
                key = (level, measure.removeprefix("baseline of "), group)
                assert baselines[key] == pytest.approx(value, nan_ok=True)
    true = table[table["method"] == "as_is"].set_index(KEYS)["value"]
    assert set(ceilings.index) == set(true.index) & set(baselines.index)
    pd.testing.assert_series_equal(ceilings, true[ceilings.index])
    beside = table[table["method"].isin(["baseline", "ceiling"])]
    assert set(beside["draw"]) == {0} and set(beside["strength"]) == {""}


@pytest.mark.parametrize("method", ["swapping", "private", "as_is"])
def test_tables_of_others_are_those_of_changed_people(compared: Compared, method: str) -> None:
    """Everybody of kind x, in the same areas: drawn anew, and without a trace in the run."""
    run, settings = compared
    population = population_of(run, settings)
    schema = settings.CENSUS.schema(settings.product_settings, "residents")
    levels = np.array(np.unravel_index(population.people.cell, schema.shape))
    levels[schema.attributes.index("kind")] = 0
    cells = np.ravel_multi_index(tuple(levels), schema.shape)
    others = replace(population, people=replace(population.people, cell=cells))
    before = sorted(path for path in run.root.rglob("*"))
    kinds = neighbour_tables(run, settings, others, Draw(method, 0, 1))["KINDS", "section"].value
    assert sorted(path for path in run.root.rglob("*")) == before
    sizes = np.bincount(population.people.area)
    if method == "private":
        assert abs(kinds[:, 0] - sizes).max() < 25 and (kinds[:, 1:] < 25).all()
    else:
        assert kinds[:, 0].tolist() == sizes.tolist() and not kinds[:, 1:].any()
