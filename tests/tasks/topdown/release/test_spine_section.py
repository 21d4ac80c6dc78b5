"""The page of off-spine distances, and the charts of a spine, from given figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.pages.document import Details, Figure, Table
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.release import spine_section
from spineflow.tasks.topdown.release.spine_distances import SpineDistances
from spineflow.tasks.topdown.release.spine_section import (
    category_statistics,
    entity_tables,
    means_chart,
    spine_document,
    statistics_table,
)
from spineflow.tasks.topdown.settings import TopdownSettings

PLACES = {"44001": (3, 2, 1), "44002": (5, 4, 3), "44003": (9, 1, 2)}
"""Blocks of each place, and how far it is from the AIAN spine and from the optimised one."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TopdownSettings:
    file = tmp_path_factory.mktemp("spine") / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "mapped"\n[run]\nuniverses = ["persons"]\n'
    )
    return load_settings(TopdownSettings, file, presets=PRESETS)


def found(names: dict[str, str] | None = None) -> SpineDistances:
    """Places of persons, and one AIAN area; what is of units is on no page of persons."""
    names = names or {}
    entities = [
        ("persons", "place", code, names.get(code, ""), blocks, spine, distance)
        for code, (blocks, *both) in PLACES.items()
        for spine, distance in zip(("aian", "optimized"), both, strict=True)
    ]
    entities += [
        ("persons", "aian", "9", "", 4, "aian", 1),
        ("persons", "aian", "9", "", 4, "optimized", 1),
        ("units", "place", "44009", "", 1, "optimized", 8),
    ]
    columns = ["universe", "category", "entity", "name", "blocks", "spine", "distance"]
    statistics = pd.DataFrame(
        [
            ("persons", "aian", "place", 3, 7 / 3, 2.0, 4.0, 4.0, 4.0),
            ("persons", "aian", "aian", 1, 1.0, 1.0, 1.0, 1.0, 1.0),
            ("persons", "optimized", "place", 3, 2.0, 2.0, 3.0, 3.0, 3.0),
            ("persons", "optimized", "aian", 1, 1.0, 1.0, 1.0, 1.0, 1.0),
            ("units", "optimized", "place", 1, 8.0, 8.0, 8.0, 8.0, 8.0),
        ],
        columns=["universe", "spine", "category", "entities", "mean", "q50", "q90", "q99", "max"],
    )
    geounits = pd.DataFrame(
        [
            ("persons", "aian", "State", 2),
            ("persons", "aian", "Tract", 7),
            ("persons", "optimized", "State", 2),
            ("persons", "optimized", "Tract_Subset", 5),
            ("units", "optimized", "State", 99),
        ],
        columns=["universe", "spine", "geolevel", "geounits"],
    )
    return SpineDistances(pd.DataFrame(entities, columns=columns), statistics, geounits)


def test_categories_have_a_row_for_each_spine() -> None:
    table = statistics_table(category_statistics(found(), "persons"))
    assert table.headers == (
        *("category", "entities", "spine", "mean", "median", "90%", "99%", "largest"),
    )
    assert [row[:4] for row in table.rows] == [
        ("place", 3, "AIAN spine", 7 / 3),
        ("place", 3, "optimised spine", 2.0),
        ("AIAN area", 1, "AIAN spine", 1.0),
        ("AIAN area", 1, "optimised spine", 1.0),
    ]
    assert table.rows[0][4:] == (2.0, 4.0, 4.0, 4.0)


def test_entities_stand_with_the_farthest_from_the_own_spine_first(
    settings: TopdownSettings,
) -> None:
    assert settings.geography.spine == "optimized"
    places, aian = entity_tables(settings, found(), "persons", 1000)
    assert places.headers == ("place", "blocks", "AIAN spine", "optimised spine")
    assert places.rows == (("44002", 5, 4, 3), ("44003", 9, 1, 2), ("44001", 3, 2, 1))
    assert (aian.headers[0], aian.rows) == ("AIAN area", (("9", 4, 1, 1),))
    few, _ = entity_tables(settings, found(), "persons", 2)
    assert few.rows == places.rows[:2]


def test_names_are_shown_where_some_entity_has_one(settings: TopdownSettings) -> None:
    places, _ = entity_tables(settings, found({"44003": "Easton"}), "persons", 1000)
    assert places.headers[:3] == ("place", "name", "blocks")
    assert places.rows[1][:3] == ("44003", "Easton", 9)


def test_the_page_says_how_many_entities_it_shows(
    settings: TopdownSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spine_section, "MOST_ENTITIES", 2)
    document = spine_document(settings, found())
    (section,) = document.sections
    assert section.title == "Off-spine distances of persons"
    details = [block for block in section.blocks if isinstance(block, Details)]
    assert [one.summary for one in details] == ["place: the farthest 2 of 3", "AIAN area: all 1"]
    sizes = section.blocks[-1]
    assert isinstance(sizes, Table)
    assert sizes.headers == ("geolevel", "geounits, AIAN spine", "geounits, optimised spine")
    assert sizes.rows == (("State", 2, 2), ("Tract", 7, "–"), ("Tract_Subset", "–", 5))
    assert "the optimised spine of mapped" in document.introduction[0]


def test_a_category_whose_mean_is_infinite_has_no_bar() -> None:
    own = category_statistics(found(), "persons")
    (figure,) = means_chart(own, "distance", "By category")
    assert isinstance(figure, Figure) and figure.caption == "By category."
    assert "place" in figure.svg and "AIAN area" in figure.svg
    own.loc[own["category"] == "place", "mean"] = [np.inf, 2.0]
    (figure,) = means_chart(own, "distance", "By category")
    assert "place" not in figure.svg and "AIAN area" in figure.svg
    assert means_chart(own[own["category"] == "place"], "distance", "By category") == []
