"""Whole inputs of the three kinds, and how settings that do not fit them are refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from spineflow.tasks.census.cef_2020 import IDENTITY_COLUMNS
from spineflow.tasks.group_sizes.ingest.read import check_groups, plan_of, public_hierarchy
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.recognition import InputDigest, RecordColumn, people_digests
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings

from tests.recognised import recognises

REGIONS = "level,region,parent\ncity,NYC,\nzone,a,NYC\nzone,b,NYC\n"
SIZES = "region,size,count\na,1,3\nb,2,4\na,5,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "regions.csv").write_text(REGIONS)
    (tmp_path / "sizes.csv").write_text(SIZES)
    return tmp_path


def settings_of(folder: Path, text: str) -> GroupSizesSettings:
    path = folder / "settings.toml"
    path.write_text(text)
    return load_settings(GroupSizesSettings, path, presets=folder)


def sizes_settings(folder: Path, *, groups="true", mechanism="", privacy="") -> GroupSizesSettings:
    return settings_of(
        folder,
        '[input]\nsizes = "sizes.csv"\nregions = "regions.csv"\n'
        f"[invariants]\ngroups = {groups}\n[mechanism]\nlargest_size = 5\n{mechanism}\n"
        f'[privacy]\ndataset = "d"\nepsilon = "1"\n{privacy}\n',
    )


def test_sizes_and_regions(folder: Path) -> None:
    found = check_groups(sizes_settings(folder, groups="8"))
    assert all(outcome.passed for outcome in found.outcomes)
    assert found.result.hierarchy.names == ("city", "zone")
    assert found.result.counts.toarray().tolist() == [[3, 0, 0, 0, 1], [0, 4, 0, 0, 0]]


def test_a_total_that_does_not_match_is_refused(folder: Path) -> None:
    found = check_groups(sizes_settings(folder, groups="9"))
    with pytest.raises(InputRefused, match=r"sizes.csv: the number of groups must be that of"):
        found.accepted()
    assert not found.outcomes[-1].passed


def test_a_level_of_one_region_has_no_numbers_of_its_own(folder: Path) -> None:
    settings = sizes_settings(folder)
    level = settings.invariants.model_copy(update={"level": "city"})
    with pytest.raises(InputRefused, match="a single region"):
        plan_of(settings.model_copy(update={"invariants": level}), public_hierarchy(settings), 8)


def test_a_broken_hierarchy_is_refused_before_the_sizes_are_read(folder: Path) -> None:
    (folder / "regions.csv").write_text(REGIONS + "zone,c,LA\n")
    (folder / "sizes.csv").unlink()
    with pytest.raises(InputRefused, match="c of level zone has a parent that is not in city"):
        check_groups(sizes_settings(folder)).accepted()
    with pytest.raises(InputRefused, match="c of level zone"):
        public_hierarchy(sizes_settings(folder))


def test_records_make_the_groups_that_a_table_of_sizes_would(folder: Path) -> None:
    rows = [("a", 1)] * 3 + [("b", 2)] * 4 + [("a", 5)]
    records = pd.DataFrame(
        [
            (f"{unit}-{i}", f"u{unit}", region)
            for unit, (region, size) in enumerate(rows)
            for i in range(size)
        ],
        columns=["person", "unit", "region"],
    )
    records.to_csv(folder / "records.csv", index=False)
    settings = settings_of(
        folder,
        '[input]\nrecords = "records.csv"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
        '[mechanism]\nlargest_size = 5\n[privacy]\ndataset = "d"\nepsilon = "1"\n',
    )
    from_records = check_groups(settings).accepted()
    from_sizes = check_groups(sizes_settings(folder)).accepted()
    assert (from_records.counts != from_sizes.counts).nnz == 0
    known, asked = (own.digests(b"key")["groups"] for own in (from_records, from_sizes))
    assert known.whole == asked.whole
    assert {*known.parts} <= {*asked.parts} and {*known.weak} <= {*asked.weak}


@pytest.mark.usefixtures("judged_once")
def test_census_tables_count_every_unit(county: Path, tmp_path: Path) -> None:
    text = "".join(
        f'{table} = "{county / file}"\n'
        for table, file in (
            ("persons", "persons.parquet"),
            ("units", "units.parquet"),
            ("geography", "grfc.txt"),
        )
    )
    text = f'[input]\n{text}[privacy]\ndataset = "d"\nepsilon = "1"\n[mechanism]\n'
    settings = settings_of(tmp_path, text)
    assert settings.smallest_size == 0
    found = check_groups(settings).accepted()
    persons = pd.read_parquet(county / "persons.parquet")
    units = pd.read_parquet(county / "units.parquet")
    assert found.hierarchy.names == ("US", "State", "County")
    assert found.counts.sum() == len(units)
    sizes = persons.groupby("MAFID").size().value_counts()
    counted = found.counts.toarray()[0]
    assert counted[0] == len(units) - sizes.sum()
    assert all(counted[size] == count for size, count in sizes.items())
    assert set(found.digests(b"key")) == {"persons", "units"}
    assert IDENTITY_COLUMNS[0] == "block_geocode"
    assert public_hierarchy(settings).n_regions == found.hierarchy.n_regions

    small = f"{text}largest_size = 3\n"
    coded = check_groups(settings_of(tmp_path, small)).accepted().counts.toarray()[0]
    assert coded.tolist() == [*counted[:3], counted[3:].sum()]
    with pytest.raises(InputRefused, match="no unit may have more than 3 persons") as refused:
        check_groups(settings_of(tmp_path, f"{small}top_coded = false\n")).accepted()
    assert "mechanism.top_coded = true" in str(refused.value)
    assert "raise" not in str(refused.value)


def test_sizes_above_the_largest_are_counted_with_it(folder: Path) -> None:
    (folder / "sizes.csv").write_text(SIZES + "b,6,2\nb,900,1\n")
    found = check_groups(sizes_settings(folder)).accepted()
    assert found.counts.toarray().tolist() == [[3, 0, 0, 0, 1], [0, 4, 0, 0, 3]]
    with pytest.raises(InputRefused, match="from 1 to 5 in every row; .*top_coded = true"):
        check_groups(sizes_settings(folder, mechanism="top_coded = false")).accepted()


def test_a_plan_that_does_not_fit_is_refused(folder: Path) -> None:
    settings = sizes_settings(folder, mechanism='levels = {zone = "3/4", borough = "1/4"}')
    hierarchy = public_hierarchy(settings)
    with pytest.raises(InputRefused, match="the levels of the hierarchy are city, zone"):
        plan_of(settings, hierarchy, 8)
    for levels, sentence in (
        ('levels = {city = "1", zone = "0"}', "gives the finest level, zone, no share"),
        ('name = "topdown"\nlevels = {city = "0", zone = "1"}', "where topdown begins"),
    ):
        with pytest.raises(InputRefused, match=sentence):
            plan_of(sizes_settings(folder, mechanism=levels), hierarchy, 8)
    with pytest.raises(InputRefused, match="invariants.level is 'street', but the levels"):
        plan_of(sizes_settings(folder, groups='true\nlevel = "street"'), hierarchy, 8)
    settings = sizes_settings(folder).model_copy(
        update={"privacy": settings.privacy.model_copy(update={"epsilon": Fraction("1e-12")})}
    )
    assert plan_of(settings, hierarchy, 8).levels[0].noise.parameter == 2 * 10**12
    with pytest.raises(InputRefused, match="would not fit 64-bit integers"):
        plan_of(settings, hierarchy, 1 << 60)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('regions = "regions.csv"\n', ""), "the section input needs records and regions"),
        (('sizes = "s"', 'sizes = "s"\nrecords = "r"'), "the section input needs records"),
        (("groups = true", "groups = false"), "declare it with invariants.groups = true"),
        (("groups = true", "groups = -4"), "invariants.groups is negative"),
        (('epsilon = "1"', 'epsilon = "0"'), "privacy.epsilon must be a positive fraction"),
        (('epsilon = "1"', 'epsilon = "-1/2"'), "privacy.epsilon must be a positive fraction"),
        (('epsilon = "1"', "epsilon = 0.5"), "must be an exact fraction in quotes"),
        (('epsilon = "1"', ""), "privacy needs epsilon or rho"),
        (('epsilon = "1"', 'epsilon = "1"\nrho = "1"'), "both epsilon and rho"),
        (('epsilon = "1"', 'rho = "0"'), "privacy.rho must be a positive fraction"),
        (("groups = true", 'groups = true\nlevel = "zone"'), "which topdown cannot"),
        (("[mechanism]", '[geography]\nlevels = ["US"]\n[mechanism]'), "is for census tables"),
        (('name = "topdown"', 'name = "top_down"'), "there are hierarchical, hierarchical_dp"),
        (('name = "topdown"', 'levels = {a = "1/2"}'), "mechanism.levels sums to 1/2"),
        (('name = "topdown"', "largest_size = 0"), "mechanism.largest_size"),
        (('name = "topdown"', 'calibration = "published"'), "the published calibration"),
        (("[invariants]\ngroups = true", ""), "declare it with invariants.groups = true"),
    ],
)
def test_settings_that_cannot_be_run_are_refused(tmp_path: Path, change, sentence: str) -> None:
    text = (
        '[input]\nsizes = "s"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
        '[mechanism]\nname = "topdown"\n[privacy]\ndataset = "d"\nepsilon = "1"\n'
    )
    settings_of(tmp_path, text)
    with pytest.raises(InputRefused, match=sentence):
        settings_of(tmp_path, text.replace(*change))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[invariants]\ngroups = 5", "invariants.groups is not for census tables"),
        ("[mechanism]\nsmallest_size = 1", "smallest_size must be 0 for census tables"),
        ("[mechanism]\nlargest_quantity = 2", "largest_quantity must be 1 for census tables"),
    ],
)
def test_settings_that_do_not_fit_census_tables(tmp_path: Path, line: str, sentence: str) -> None:
    text = (
        '[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "d"\nepsilon = "1"\n'
    )
    settings_of(tmp_path, text)
    with pytest.raises(InputRefused, match=sentence):
        settings_of(tmp_path, f"{text}{line}\n")


@pytest.mark.usefixtures("judged_once")
def test_a_part_of_the_groups_is_recognised(tmp_path: Path) -> None:
    """Threat model: the same people under another name."""

    def digest(
        name: str, seed: int, *, part: int = 1, renamed: str = "", top: int = 40
    ) -> InputDigest:
        folder = tmp_path / name
        folder.mkdir()
        rng = np.random.default_rng(seed)
        towns = np.arange(0, 60, part)
        size = [np.minimum(rng.geometric(0.2, 900), 39) for _ in range(60)]
        rows = [(f"{renamed}{town}", s, 1) for town in towns for s in size[town]]
        frame = pd.DataFrame(rows, columns=["region", "size", "count"])
        frame.groupby(["region", "size"], as_index=False).sum().to_csv(
            folder / "sizes.csv", index=False
        )
        regions = [("nation", "all", "")] + [("town", f"{renamed}{t}", "all") for t in towns]
        pd.DataFrame(regions, columns=["level", "region", "parent"]).to_csv(
            folder / "regions.csv", index=False
        )
        settings = settings_of(
            folder,
            '[input]\nsizes = "sizes.csv"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
            f"[mechanism]\nlargest_size = {top}\ntop_coded = true\nsmallest_size = 1\n"
            '[privacy]\ndataset = "d"\nepsilon = "1"\n',
        )
        return check_groups(settings).accepted().digests(b"key")["groups"]

    known = digest("known", 1)
    for name, other in {
        "some towns": digest("some towns", 1, part=7),
        "renamed": digest("renamed", 1, renamed="t"),
        "another top": digest("another top", 1, top=30),
    }.items():
        assert recognises(known, other), name
        assert recognises(other, known), name
    assert not recognises(known, digest("others", 2))


@pytest.mark.usefixtures("judged_once")
def test_what_a_record_counts_for_is_recognised_alone(tmp_path: Path) -> None:
    """As a declared census of the quantities has them by region."""
    rng = np.random.default_rng(1)
    records = pd.DataFrame(
        {"unit": rng.integers(0, 3000, 9000), "quantity": rng.integers(1, 5, 9000)}
    )
    records["region"] = [f"r{unit % 50:02d}" for unit in records["unit"]]
    records["person"] = np.arange(len(records))
    records.to_csv(tmp_path / "records.csv", index=False)
    regions = [("nation", "all", "")] + [("town", f"r{n:02d}", "all") for n in range(50)]
    pd.DataFrame(regions, columns=["level", "region", "parent"]).to_csv(
        tmp_path / "regions.csv", index=False
    )
    settings = settings_of(
        tmp_path,
        '[input]\nrecords = "records.csv"\nregions = "regions.csv"\n[invariants]\ngroups = true\n'
        "[mechanism]\nlargest_size = 90\ntop_coded = true\nlargest_quantity = 5\n"
        '[privacy]\ndataset = "d"\nepsilon = "1"\n',
    )
    known = check_groups(settings).accepted().digests(b"key")["groups"]
    counts = pd.crosstab(records["region"], records["quantity"]).to_numpy()
    column = RecordColumn(sparse.csr_array(counts), [str(n) for n in range(1, 5)])
    asked = people_digests([column], [np.zeros(50, dtype=np.int64)], b"key")
    assert recognises(known, InputDigest("another").recognised_by(asked, b"key"))
