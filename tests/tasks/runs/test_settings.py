"""What the settings of every product say of runs whose noise protects nobody."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import tomli_w
from spineflow.flows.demo import DEMOS
from spineflow.flows.products import ProductsSettings
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.settings import TripsSettings

PRESETS = Path(__file__).resolve().parents[3] / "flows" / "settings"

SIZES = """\
[input]
sizes = "sizes.parquet"
regions = "regions.csv"
[invariants]
groups = true
[privacy]
dataset = "d"
epsilon = "1"
"""
TRIPS = """\
[input]
trips = "trips.parquet"
origin = "o"
destination = "d"
areas = "areas.csv"
[privacy]
dataset = "d"
rho = "1"
"""
PRODUCTS = """\
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "d"
[products.topdown]
preset = "pl94_2020_us"
[products.group-sizes]
privacy = { epsilon = "1" }
"""


def loaded(
    folder: Path, model: type[ProductSettings], text: str, *overrides: str
) -> ProductSettings:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(model, file, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize(
    ("model", "text", "override", "why"),
    [
        (TripsSettings, TRIPS, "privacy.infinite=true", "noise was switched off"),
        (TripsSettings, TRIPS, "privacy.seed=0", "noise can be repeated from the seed"),
        (GroupSizesSettings, SIZES, "privacy.seed=4", "noise can be repeated from the seed"),
        (GroupSizesSettings, SIZES, "mechanism.calibration=published", "the published scale"),
    ],
)
def test_what_is_not_private_says_why_and_needs_public_data(
    tmp_path: Path, model: type[ProductSettings], text: str, override: str, why: str
) -> None:
    """Threat model: runs without private noise taken for private ones."""
    with pytest.raises(InputRefused, match="testing only: set input.confidential = false"):
        loaded(tmp_path, model, text, override)
    settings = loaded(tmp_path, model, text, override, "input.confidential=false")
    assert not settings.is_private
    assert settings.stamp.startswith("NOT PRIVATE: noise")
    assert why in settings.stamp

    private = loaded(tmp_path, model, text, "input.confidential=false")
    assert private.is_private
    assert private.stamp is None


def test_products_are_private_together_or_not_at_all(tmp_path: Path) -> None:
    """Threat model: runs without private noise taken for private ones."""
    assert loaded(tmp_path, ProductsSettings, PRODUCTS).is_private
    assert not loaded(tmp_path, ProductsSettings, PRODUCTS, "privacy.seed=1").is_private
    published = "products.group-sizes.mechanism.calibration=published"
    with pytest.raises(InputRefused, match="one is private and one is not .noise has the publish"):
        loaded(tmp_path, ProductsSettings, PRODUCTS, published)
    with pytest.raises(InputRefused, match="set privacy.infinite and privacy.seed in .privacy."):
        loaded(tmp_path, ProductsSettings, PRODUCTS, "products.topdown.privacy.seed=1")


def test_products_of_one_flow_are_published_in_folders_of_their_own(tmp_path: Path) -> None:
    given = tomllib.loads((DEMOS / "households.toml").read_text(encoding="utf-8"))
    given |= {"release": {"publish_to": "s3://office/2020/"}}
    settings = loaded(tmp_path, ProductsSettings, tomli_w.dumps(given))
    places = {name: own.published_to for name, own in settings.products.chosen().items()}
    assert places == {
        "topdown": "s3://office/2020/",
        "dhc-units": "s3://office/2020/dhc-units",
        "dhc-persons": "s3://office/2020/dhc-persons",
    }
    assert settings.published_to == "s3://office/2020/"
    # Without persons there is no population, and nothing of the run's own to be published.
    del given["products"]["dhc-persons"]
    assert loaded(tmp_path, ProductsSettings, tomli_w.dumps(given)).published_to is None
    # A product's own place wins, and where all have one, the population still needs the shared one.
    given = tomllib.loads((DEMOS / "households.toml").read_text(encoding="utf-8"))
    given |= {"release": {"publish_to": "s3://office/all"}}
    for name, own in given["products"].items():
        own["release"] = {"publish_to": f"s3://office/{name}-alone"}
    settings = loaded(tmp_path, ProductsSettings, tomli_w.dumps(given))
    assert settings.published_to == "s3://office/all"
    assert settings.products.chosen()["dhc-units"].published_to == "s3://office/dhc-units-alone"
