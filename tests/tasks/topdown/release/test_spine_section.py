"""The page of off-spine distances, and the charts of a spine, from given figures."""

from __future__ import annotations

import pandas as pd
import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.release.spine_distances import SpineDistances
from spineflow.tasks.topdown.release.spine_section import (
    category_statistics,
    entity_tables,
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
