"""Tables of trips and files of areas: what is read, in every form, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.ingest import (
    check_input,
    input_digests,
    public_shape,
    refuse_delta_of,
)
from spineflow.tasks.trips.settings import TripsSettings

from tests.recognised import recognises

AREAS = pd.DataFrame(
    [
        ("town", "1", "10"),
        ("town", "2", "10"),
        ("town", "3", "20"),
        ("region", "10", ""),
        ("region", "20", ""),
    ],
    columns=["level", "area", "parent"],
)
TRIPS = pd.DataFrame({"from": [1, 1, 2, 3], "to": [1, 3, 2, 3], "n": [5, 2, 0, 7]})
LEAVES = {("1", "1"): 5, ("1", "3"): 2, ("3", "3"): 7}


def settings_in(folder: Path, *overrides: str, areas: str = "areas.csv") -> TripsSettings:
    path = folder / "settings.toml"
    path.write_text(
        f'[input]\ntrips = "trips.csv"\norigin = "from"\ndestination = "to"\ncount = "n"\n'
        f'areas = "{areas}"\nconfidential = false\n'
        '[privacy]\ndataset = "d"\nepsilon = "1"\ndelta = "1e-8"\n'
    )
    return load_settings(TripsSettings, path, presets=folder, overrides=overrides)


def write(folder: Path, trips: pd.DataFrame = TRIPS, areas: pd.DataFrame = AREAS) -> None:
    trips.to_csv(folder / "trips.csv", index=False)
    areas.to_csv(folder / "areas.csv", index=False)


def counts(settings: TripsSettings) -> dict[tuple[str, ...], int]:
    """Counts of the accepted leaves by the codes of their areas."""
    check = check_input(settings)
    assert not check.findings and all(outcome.passed for outcome in check.outcomes)
    found = check.accepted()
    tree = found.shape.tree
    positions = tree.positions(tree.depth, found.leaves.keys)
    codes = [d.levels[-1].codes[p] for d, p in zip(tree.dimensions, positions, strict=True)]
    return dict(zip(zip(*codes, strict=True), found.leaves.counts.tolist(), strict=True))


def test_text_parquet_and_gzip_give_the_same_leaves(tmp_path: Path) -> None:
    write(tmp_path)
    TRIPS.to_parquet(tmp_path / "trips.parquet")
    (tmp_path / "trips.csv.gz").write_bytes(gzip.compress((tmp_path / "trips.csv").read_bytes()))
    for name in ("trips.csv", "trips.parquet", "trips.csv.gz"):
        assert counts(settings_in(tmp_path, f"input.trips={name}")) == LEAVES


def test_other_types_and_orders_mean_the_same(tmp_path: Path) -> None:
    padded = AREAS.assign(area=AREAS["area"].str.zfill(3), parent=AREAS["parent"].str.zfill(3))
    padded["parent"] = padded["parent"].replace("000", "")
    write(tmp_path, TRIPS.astype({"n": float}), padded.sample(frac=1, random_state=3))
    expected = {(a.zfill(3), b.zfill(3)): n for (a, b), n in LEAVES.items()}
    assert counts(settings_in(tmp_path)) == expected


def test_origins_and_destinations_may_live_in_different_areas(tmp_path: Path) -> None:
    write(tmp_path, TRIPS.assign(to=["a", "b", "b", "b"]))
    other = [("land", "x", ""), ("city", "a", "x"), ("city", "b", "x")]
    pd.DataFrame(other, columns=AREAS.columns).to_csv(tmp_path / "other.csv", index=False)
    settings = settings_in(tmp_path, "input.destination_areas=other.csv")
    assert counts(settings) == {("1", "a"): 5, ("1", "b"): 2, ("3", "b"): 7}
    assert public_shape(settings).tree.level_name(4) == "origin town, destination city"


BREAKS: dict[str, tuple[Callable[[], dict], str]] = {
    "negative": (lambda: {"trips": TRIPS.assign(n=[5, -2, 0, 7])}, "must not be negative"),
    "fractional": (lambda: {"trips": TRIPS.assign(n=[5, 2.5, 0, 7])}, "must be a whole number"),
    "exponents": (
        lambda: {"trips": TRIPS.assign(n=["5", "1e+05", "0", "7"])},
        "100000 in place of",
    ),
    "words": (lambda: {"trips": TRIPS.assign(n=["5", "two", "0", "7"])}, "must be a whole number"),
    "blank count": (lambda: {"trips": TRIPS.assign(n=["5", "", "0", "7"])}, "a whole number"),
    "huge": (lambda: {"trips": TRIPS.assign(n=[5, 10**18, 0, 7])}, "must be a whole number"),
    "unknown origin": (
        lambda: {"trips": TRIPS.assign(**{"from": [1, 9, 2, 3]})},
        "from must be an area of the finest level in areas.csv",
    ),
    "coarse destination": (
        lambda: {"trips": TRIPS.assign(to=[10, 3, 2, 3])},
        "to must be an area of the finest level in areas.csv",
    ),
    "two parents": (
        lambda: {"areas": pd.concat([AREAS, AREAS.head(1).assign(parent="20")])},
        "every area must have one parent, but 1 of level town has two",
    ),
    "twice": (lambda: {"areas": pd.concat([AREAS, AREAS.head(1)])}, "must stand once"),
    "unknown parent": (
        lambda: {"areas": AREAS.assign(parent=["10", "99", "20", "", ""])},
        "every parent must be in the level above, but 2 of level town",
    ),
    "unequal depths": (
        lambda: {"areas": pd.concat([AREAS, AREAS.tail(1).assign(area="30")])},
        "every branch must reach the finest level, but 30 of level region",
    ),
    "no area": (lambda: {"areas": AREAS.assign(area=["1", "2", "", "10", "20"])}, "must name"),
    "no chain": (
        lambda: {"areas": AREAS.assign(parent=["10", "10", "20", "10", "10"])},
        "must form one chain",
    ),
    "two coarsest": (
        lambda: {"areas": AREAS.assign(parent="")},
        "must form one chain",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_what_breaks_a_rule_is_refused(case: str, tmp_path: Path) -> None:
    make, message = BREAKS[case]
    write(tmp_path, **make())
    check = check_input(settings_in(tmp_path))
    assert check.result is None
    assert message in check.findings[0].sentence()
    assert not all(outcome.passed for outcome in check.outcomes)


TABLE = pd.DataFrame(
    {
        "region": ["n", "n", "s", "s", "s", "n"],
        "town": ["n1", "n2", "s1", "s1", "s2", "n1"],
        "sex": ["f", "m", "f", "m", "f", "m"],
        "n": [1, 2, 3, 4, 5, 6],
    }
)
TABLE_COUNTS = {
    (town, sex): n for town, sex, n in zip(TABLE["town"], TABLE["sex"], TABLE["n"], strict=True)
}
VALUES = pd.DataFrame(
    [
        ("region", "n", ""),
        ("region", "s", ""),
        *[("town", town, town[0]) for town in ("n1", "n2", "s1", "s2", "s3")],
        ("sex", "f", ""),
        ("sex", "m", ""),
    ],
    columns=["level", "area", "parent"],
)


def table_settings(folder: Path) -> TripsSettings:
    path = folder / "table.toml"
    path.write_text(
        '[input]\ntable = "table.csv"\nlevels = ["region", "town", "sex"]\ncount = "n"\n'
        'areas = "values.csv"\n[privacy]\ndataset = "d"\nrho = "1/10"\n'
    )
    TABLE.to_csv(folder / "table.csv", index=False)
    VALUES.to_csv(folder / "values.csv", index=False)
    return load_settings(TripsSettings, path, presets=folder)


def test_any_table_is_a_tree_of_its_columns(tmp_path: Path) -> None:
    settings = table_settings(tmp_path)
    assert counts(settings) == TABLE_COUNTS
    shape = public_shape(settings)
    assert [shape.tree.level_name(level) for level in range(4)] == [
        "root",
        "region",
        "town",
        "town, sex",
    ]
    assert shape.tree.n_nodes(3) == 10
    assert [place.name for place in shape.columns] == ["region", "town", "sex"]


def test_values_out_of_place_are_refused(tmp_path: Path) -> None:
    settings = table_settings(tmp_path)
    TABLE.assign(region=["n", "s", "s", "s", "s", "n"]).to_csv(tmp_path / "table.csv", index=False)
    assert "region must be a value" in check_input(settings).findings[0].sentence()
    VALUES[VALUES["level"] != "sex"].to_csv(tmp_path / "values.csv", index=False)
    assert "every level column must have values" in check_input(settings).findings[0].sentence()


SETTINGS = {
    "neither trips nor table": ('[input]\nareas = "x"\n', "must name either trips"),
    "no destination": (
        '[input]\ntrips = "t"\norigin = "a"\nareas = "x"\n',
        "input.destination is missing",
    ),
    "no levels": ('[input]\ntable = "t"\nareas = "x"\n', "input.levels is missing"),
    "one column twice": (
        '[input]\ntrips = "t"\norigin = "a"\ndestination = "a"\nareas = "x"\n',
        "names the column 'a' twice",
    ),
}
SETTINGS["reserved name"] = (
    '[input]\ntable = "t"\nlevels = ["level", "b"]\nareas = "x"\n',
    "as files of the run do",
)
PRIVACY = {
    'epsilon = "0"\ndelta = "1e-8"': "must be a positive fraction",
    'epsilon = "-1"\ndelta = "1e-8"': "must be a positive fraction",
    'epsilon = "1"': "privacy.delta is missing",
    'epsilon = "1"\ndelta = "1"': "must be positive and below 1",
    'epsilon = "1"\ndelta = "1e-8"\nrho = "1"': "both epsilon and rho",
    "": "needs epsilon and delta, or rho",
    'rho = "1"\ntrips_per_person = 3': "privacy.total is missing",
    'rho = "1"\nneighbors = "unbounded"\ntotal = "invariant"': "cannot be invariant",
}
MECHANISM = {
    'name = "stability_histogram"': "needs it and delta",
    'shares = ["1/2", "1/3"]': "must sum to exactly 1",
    'shares = ["1", "0"]': "positive share",
    'shares = "equal"': 'must be one of "uniform"',
    "shares = [0.5, 0.5]": "exact fraction in quotes",
    'share_ratio = "0"': "must be a positive fraction",
}
WHOLE_INPUT = '[input]\ntrips = "t"\norigin = "a"\ndestination = "b"\nareas = "x"\n'
WHOLE_PRIVACY = '[privacy]\ndataset = "d"\nrho = "1"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text + WHOLE_PRIVACY, message) for text, message in SETTINGS.values()),
        *((f'{WHOLE_INPUT}[privacy]\ndataset = "d"\n{p}\n', m) for p, m in PRIVACY.items()),
        *((f"{WHOLE_INPUT}{WHOLE_PRIVACY}[mechanism]\n{t}\n", m) for t, m in MECHANISM.items()),
    ],
)
def test_settings_that_contradict_themselves_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(InputRefused, match=message):
        load_settings(TripsSettings, path, presets=tmp_path)


def people(settings: TripsSettings) -> InputDigest:
    found = check_input(settings).accepted()
    return input_digests(found.shape.tree, found.leaves, b"key")["trips"]


def test_people_are_known_under_other_names_of_columns(tmp_path: Path) -> None:
    write(tmp_path)
    known = people(settings_in(tmp_path))
    TRIPS.rename(columns={"from": "home", "to": "work", "n": "people"}).to_csv(
        tmp_path / "renamed.csv", index=False
    )
    text = (
        '[input]\ntable = "renamed.csv"\nlevels = ["work", "home"]\ncount = "people"\n'
        'areas = "values.csv"\n[privacy]\ndataset = "other"\nepsilon = "1"\ndelta = "1e-8"\n'
    )
    values_of(TRIPS[["from", "to"]].set_axis(["home", "work"], axis=1)).to_csv(
        tmp_path / "values.csv", index=False
    )
    (tmp_path / "renamed.toml").write_text(text)
    renamed = people(load_settings(TripsSettings, tmp_path / "renamed.toml", presets=tmp_path))
    assert renamed.whole == known.whole
    assert renamed.parts != known.parts
    TRIPS.assign(n=TRIPS["n"] * 2).to_csv(tmp_path / "trips.csv", index=False)
    assert people(settings_in(tmp_path)).whole != known.whole


def values_of(columns: pd.DataFrame) -> pd.DataFrame:
    """The list of the values of some columns, none of them nested."""
    parts = [pd.DataFrame({"level": name, "area": own.unique()}) for name, own in columns.items()]
    return pd.concat(parts).assign(parent="")


def commuters(folder: Path, trips: pd.DataFrame, levels: str) -> InputDigest:
    """The people of a table of trips, whose columns are the levels of a tree."""
    folder.mkdir()
    trips.to_csv(folder / "table.csv", index=False)
    values_of(trips[["home", "work"]]).to_csv(folder / "values.csv", index=False)
    (folder / "settings.toml").write_text(
        f'[input]\ntable = "table.csv"\nlevels = {levels}\ncount = "n"\nareas = "values.csv"\n'
        '[privacy]\ndataset = "d"\nepsilon = "1"\ndelta = "1e-8"\n'
    )
    return people(load_settings(TripsSettings, folder / "settings.toml", presets=folder))


def test_a_part_of_the_trips_is_recognised(tmp_path: Path) -> None:
    """Threat model: the same people under another name."""

    def trips(seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        columns = {"home": rng.integers(100, 200, 4000), "work": rng.integers(100, 200, 4000)}
        grouped = pd.DataFrame(columns | {"n": rng.geometric(0.01, 4000)})
        return grouped.groupby(["home", "work"], as_index=False).sum()

    levels = '["home", "work"]'
    known = commuters(tmp_path / "known", trips(1), levels)
    of_some_homes = trips(1).query("home % 3 == 0")
    renamed = of_some_homes.assign(work=of_some_homes["work"] * 7)
    renamed["home"] = "h" + of_some_homes["home"].astype(str)
    for name, part in {
        "some homes": of_some_homes,
        "some work": trips(1).query("work < 140"),
        "renamed": renamed,
    }.items():
        own = commuters(tmp_path / name, part, levels)
        assert recognises(known, own), name
        assert recognises(own, known), name
    assert not recognises(known, commuters(tmp_path / "others", trips(2), levels))


@pytest.mark.parametrize(
    ("delta", "more", "refused"),
    [
        ("9/10", (), True),
        ("1/14", (), True),
        ("1/15", (), False),
        ("9/10", ("input.confidential=false",), False),
        ("9/10", ("privacy.large_delta=a person may be published outright",), False),
    ],
)
def test_a_delta_of_one_over_the_persons_is_refused(
    tmp_path: Path, delta: str, more: tuple[str, ...], refused: bool
) -> None:
    """There are fourteen; what is said has no number, since theirs may be confidential."""
    write(tmp_path)
    overrides = ("input.confidential=true", f'privacy.delta="{delta}"', *more)
    settings = settings_in(tmp_path, *overrides)
    if not refused:
        refuse_delta_of(settings, 14)
        return
    with pytest.raises(InputRefused, match="privacy.delta is not below one over") as told:
        refuse_delta_of(settings, 14)
    assert "14" not in str(told.value)
