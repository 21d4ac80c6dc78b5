"""Every sentence of the other products' certificates follows the setting that makes it true."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest.ingest import parameters_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.release import certificate as detailed_groups
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.measurement import charge as sizes
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.group_sizes.workload.costs import universe_plan as sizes_plan
from spineflow.tasks.group_sizes.workload.plan import make_plan
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.certificate import Facts
from spineflow.tasks.products.plan import Plan
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.ingest import public_shape
from spineflow.tasks.trips.measurement import charge as trip
from spineflow.tasks.trips.release import certificate as trips
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.costs import universe_plan as trips_plan
from spineflow.tasks.trips.workload.plan import make_plan as make_trips_plan

from tests.certificates import certificate_text

AREAS = pd.DataFrame(
    [("town", "1", "10"), ("town", "2", "10"), ("town", "3", "20"), ("region", "10", "")]
    + [("region", "20", "")],
    columns=["level", "area", "parent"],
)


def groups_text(folder: Path, *overrides: str) -> str:
    file = folder / "settings.toml"
    file.write_text(
        f'[input]\nparameters = "{folder}/params"\ndata = "{folder}/data"\n'
        '[privacy]\ndataset = "d"\n'
    )
    settings = load_settings(DetailedGroupsSettings, file, presets=folder, overrides=overrides)
    specification = read_specification(settings.input.parameters)
    parameters = parameters_of(settings)
    facts = detailed_groups.facts_of(settings, parameters, specification)
    return certificate_text(settings, DETAILED_GROUPS.plan(settings, None), facts)


def test_detailed_groups_by_definition_and_pass(groups_input: Path) -> None:
    text = groups_text(groups_input)
    assert "has one person's record more than the other" in text
    assert "twice the rho (Theorem 2 of SafeTab-P)" in text and "twice the epsilon" not in text
    assert "by the first 8 race codes" in text
    assert "Nobody is counted in both passes" in text, "the folder's own config runs both"
    assert "inhabited blocks" not in text
    one = groups_text(groups_input, "mechanism.run_pr=false", "mechanism.max_race_codes=1")
    assert "both passes" not in one and "PR pass" not in one and "US pass" in one
    assert "by the first race code and" in one
    pure = groups_text(groups_input, "mechanism.definition=puredp")
    assert "twice the epsilon" in pure and "Theorem 2" not in pure
    assert "pure differential privacy" in pure and "discrete Gaussian" not in pure
    assert "left out" in text


def test_detailed_groups_without_protection(groups_input: Path) -> None:
    public = "input.confidential=false"
    infinite = groups_text(groups_input, public, "privacy.infinite=true")
    assert "Nothing is guaranteed: noise was switched off" in infinite
    assert "an exact total" in infinite and "The guarantee compares" not in infinite
    seeded = groups_text(groups_input, public, "privacy.seed=1")
    assert "Nothing is guaranteed: noise can be repeated" in seeded


def sizes_text(folder: Path, *overrides: str, **plan) -> str:
    file = folder / "settings.toml"
    file.write_text(
        '[input]\nsizes = "s.parquet"\nregions = "r.csv"\n[invariants]\ngroups = true\n'
        '[privacy]\ndataset = "d"\nepsilon = "1"\n'
    )
    settings = load_settings(GroupSizesSettings, file, presets=folder, overrides=overrides)
    made = make_plan(
        names=["nation", "state"],
        n_regions=[1, 5],
        groups=1234,
        **{"sizes": (1, 20), "epsilon": settings.epsilon} | plan,
    )
    facts = Facts("group_sizes/templates/certificate.md.j2", {"measured": made})
    cost = Cost(sizes_plan(made))
    return certificate_text(
        settings, Plan.of(settings, [cost], sizes.statement_of(made), sizes.exact_of(made)), facts
    )


def test_group_sizes_by_neighbours_sizes_and_quantity(tmp_path: Path) -> None:
    text = sizes_text(tmp_path)
    assert "one person joins or leaves a group." in text and "moves from" not in text
    assert "1,234 in all" in text and "pure differential privacy" in text
    assert "is not protected" in text and "Empty groups are counted" not in text
    moved = sizes_text(tmp_path, 'privacy.neighbors="bounded"', bounded=True, sizes=(0, 20))
    assert "one person moves from a group to another." in moved and "joins" not in moved
    assert "Empty groups are counted" in moved and "is not protected" not in moved
    assert "one record changed" in moved
    many = sizes_text(tmp_path, "mechanism.largest_quantity=3", quantity=3)
    assert "changes by up to 3" in many


def test_group_sizes_without_protection(tmp_path: Path) -> None:
    public = "input.confidential=false"
    text = sizes_text(tmp_path, public, "privacy.infinite=true")
    assert "noise was switched off" in text and "were measured without noise" in text
    published = 'mechanism.calibration="published"'
    text = sizes_text(tmp_path, public, published, calibration="published")
    assert "Nothing is guaranteed: noise has the published scale" in text
    assert "The guarantee compares" not in text


def trips_text(
    folder: Path, *overrides: str, total: int | None = 500, warning: str | None = None
) -> str:
    file = folder / "settings.toml"
    file.write_text(
        '[input]\ntrips = "trips.csv"\norigin = "from"\ndestination = "to"\ncount = "n"\n'
        'areas = "areas.csv"\n[privacy]\ndataset = "d"\nepsilon = "1"\ndelta = "1e-8"\n'
    )
    AREAS.to_csv(folder / "areas.csv", index=False)
    settings = load_settings(TripsSettings, file, presets=folder, overrides=overrides)
    plan = make_trips_plan(settings, public_shape(settings).tree)
    known = total if settings.contribution.has_invariant_total else None
    facts = trips.facts_of(settings, plan, known, warning)
    cost = Cost(trips_plan(plan, settings.report_delta))
    statement = trip.statement_of(settings, plan)
    return certificate_text(
        settings, Plan.of(settings, [cost], statement, trip.exact_of(plan, known)), facts
    )


def test_trips_by_neighbours_and_trips_of_a_person(tmp_path: Path) -> None:
    text = trips_text(tmp_path)
    assert "one person's trips, which go elsewhere in the other" in text
    assert "A person makes exactly 1 trip;" in text
    assert "500 in all, released without noise" in text and "1e-8" in text
    assert "fail altogether" not in text and "threshold" not in text
    added = trips_text(tmp_path, "privacy.neighbors=unbounded")
    assert "in one of them alone" in added and "elsewhere" not in added
    assert "released without noise" not in added and "Exact is only" not in added
    assert "at most 1 trip;" in added and "one record added or removed" in added
    several = ("privacy.trips_per_person=3", "privacy.total=measured")
    assert "at most 3 trips, wherever they go" in trips_text(tmp_path, *several)
    distinct = trips_text(tmp_path, *several, "privacy.distinct_trips=true")
    assert "no two in one cell" in distinct


def test_trips_by_mechanism(tmp_path: Path) -> None:
    histogram = trips_text(tmp_path, "mechanism.name=stability_histogram", warning="delta is large")
    assert "passes a threshold" in histogram and "fail altogether" in histogram
    assert "pure differential privacy" in histogram and "Warning: delta is large." in histogram
    assert "released without noise" not in histogram
    leaves = trips_text(tmp_path, "mechanism.name=gaussian_leaves")
    assert "released without noise" not in leaves and "counts may be negative" in leaves


@pytest.mark.parametrize("name", ["inftda", "stability_histogram"])
def test_trips_without_protection(tmp_path: Path, name: str) -> None:
    options = ("input.confidential=false", f"mechanism.name={name}")
    for override, why in (("infinite=true", "switched off"), ("seed=3", "can be repeated")):
        text = trips_text(tmp_path, *options, f"privacy.{override}")
        assert "Nothing is guaranteed" in text and why in text
        assert "The guarantee compares" not in text


def test_plans_cost_what_their_certificates_say(tmp_path: Path) -> None:
    assert f"rho {Fraction(1, 2)}" not in sizes_text(tmp_path)
    assert "| 2 |" in sizes_text(tmp_path), "2 epsilon^2 of bounded zCDP"
