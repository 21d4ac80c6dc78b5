"""A finished run written by hand, right in everything, for tests to spoil.

A state split by an AIAN area, two counties, a block group with one block (which is bypassed), a
block with facilities only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, noise_variance
from spineflow.tasks.topdown.checks.expectations import cells_of, layout_facts
from spineflow.tasks.topdown.release.microdata import (
    write_microdata,
)
from spineflow.validation.outcome import Outcome
from spineflow.validation.topdown.run_checks import (
    CHECKS,
    check_below,
    check_rows,
    check_top,
    universe_outcomes,
)
from spineflow.validation.topdown.run_files import ExpectedUniverse

from tests.block_estimates import counts_of_table, read_block_estimates
from tests.whole_checks import OnceRead, run_checks

GEOLEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
SHARES = dict(
    zip(GEOLEVELS, map(Fraction, ("1/41", "9/41", "4/41", "7/41", "13/41", "7/41")), strict=True)
)

PATHS = {
    # block geocode: State, County, Tract, Block_Group of the block
    "4400103010011000": ("044", "04410001", "04410001001", "044100010010001"),
    "4400103010011001": ("044", "04410001", "04410001001", "044100010010001"),
    "4400103010022000": ("044", "04410001", "04410001001", "044100010010002"),
    "4400302010011000": ("044", "04410003", "04410003001", "044100030010001"),
    "4400302010011001": ("044", "04410003", "04410003001", "044100030010001"),
    "4400103010011002": ("144", "14410001", "14410001001", "144100010010001"),
    "4400103010011003": ("144", "14410001", "14410001001", "144100010010001"),
}
FACILITIES = {"4400103010011001": {1: 1, 3: 2}, "4400302010011001": {3: 1}}
HOUSING_UNITS = dict(zip(PATHS, (4, 3, 2, 5, 0, 3, 1), strict=True))
BYPASSED_BLOCK = "4400103010022000"
BYPASSED_BLOCK_GROUP = "044100010010002"
STRUCTURAL_ZEROS = {"nurse_nva_0_con": {"hhgq": [3], "votingage": [0]}}
QUERY_SHARES = {
    "persons": {"total": Fraction(2, 7), "hispanic * cenrace": Fraction(5, 7)},
    "units": {"detailed": Fraction(1)},
}
EXPECTED = {
    "persons": ExpectedUniverse(
        cells=cells_of(PERSONS),
        geolevels=GEOLEVELS,
        total=Fraction(293764, 114921),
        query_shares=dict.fromkeys(GEOLEVELS, QUERY_SHARES["persons"]),
        constraints={
            "total_con": ("US",),
            "state_total_con": ("State",),
            "hhgq_total_lb_con": GEOLEVELS,
            "hhgq_total_ub_con": GEOLEVELS,
            "nurse_nva_0_con": GEOLEVELS,
        },
        structural_zeros=STRUCTURAL_ZEROS,
        layout=layout_facts(PERSONS),
    ),
    "units": ExpectedUniverse(
        cells=cells_of(UNITS),
        geolevels=GEOLEVELS,
        total=Fraction(3, 40),
        query_shares=dict.fromkeys(GEOLEVELS, QUERY_SHARES["units"]),
        constraints={"total_con": GEOLEVELS},
        structural_zeros={},
        layout=layout_facts(UNITS),
    ),
}


EXPECTED_WITHOUT_NOISE = {name: replace(one, total=None) for name, one in EXPECTED.items()}


def ancestor_table() -> pd.DataFrame:
    rows = [
        {"US": "0", **dict(zip(GEOLEVELS[1:5], path, strict=True)), "Block": path[-1] + block}
        for block, path in PATHS.items()
    ]
    return pd.DataFrame(rows).assign(block_geocode=list(PATHS))


def person_blocks() -> np.ndarray:
    """Counts of shape (blocks, 2016): some households in each, one or two in each facility."""
    generator = np.random.default_rng(20)
    counts = np.zeros((len(PATHS), PERSONS.n_cells), dtype=np.int64)
    for i, block in enumerate(PATHS):
        if HOUSING_UNITS[block]:
            cells = generator.integers(0, 252, size=5)
            np.add.at(counts[i], cells, generator.integers(1, 4, size=5))
        for kind, facilities in FACILITIES.get(block, {}).items():
            counts[i, PERSONS.cells_where({"hhgq": [kind], "votingage": [1]}).argmax()] = (
                facilities + 1
            )
    return counts


def unit_blocks() -> np.ndarray:
    total = np.array(list(HOUSING_UNITS.values()))
    return np.stack([total // 3, total - total // 3], axis=1)


def facility_matrix() -> np.ndarray:
    return np.array([[FACILITIES.get(b, {}).get(t, 0) for t in range(1, 8)] for b in PATHS])


def write(path: Path, columns: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_universe(run: Path, schema: Schema, counts: np.ndarray, expected) -> None:
    ancestors = ancestor_table()
    housing_units = np.array(list(HOUSING_UNITS.values()))
    geounits = []
    for i, level in enumerate(GEOLEVELS):
        codes = ancestors[level].to_numpy(object)
        names, position = np.unique(codes, return_inverse=True)
        in_geounit = np.zeros((len(names), len(codes)), dtype=np.int64)
        in_geounit[position, np.arange(len(codes))] = 1
        shares = [SHARES[level]] * len(names)
        if level == "Block":
            shares[position[list(PATHS).index(BYPASSED_BLOCK)]] = Fraction(0)
        if level == "Block_Group":
            shares[list(names).index(BYPASSED_BLOCK_GROUP)] += SHARES["Block"]
        for name, share in zip(names, shares, strict=True):
            row = ancestors[codes == name].iloc[0]
            geounits.append(
                {
                    "geolevel": level,
                    "geocode": name,
                    "parent": row[GEOLEVELS[i - 1]] if i else None,
                    "plb_share": str(share),
                    "is_aian": name.startswith("1"),
                    "bypassed": share == 0,
                    "n_blocks": int((codes == name).sum()),
                }
            )
        histograms = in_geounit @ counts
        geounit, cell = np.nonzero(histograms)
        write(
            run / "estimates" / schema.universe / level / "part-0.parquet",
            {
                "geocode": names[geounit].tolist(),
                "cell": cell,
                "count": histograms[geounit, cell],
            },
        )
        measured = run / "measurements" / schema.universe / level
        rows = {name: [] for name in ("geocode", "query_name", "value", "variance", "plb")}
        for name, share in zip(names, shares, strict=True):
            for query, query_share in expected.query_shares[level].items():
                if share:
                    loss = "inf" if expected.total is None else expected.total * share * query_share
                    rows["geocode"].append(name)
                    rows["query_name"].append(query + "_dpq")
                    rows["value"].append([0] * marginal_query(schema, query).n_rows)
                    rows["variance"].append(
                        0.0
                        if expected.total is None
                        else noise_variance(DISCRETE_GAUSSIAN, 1 / loss)
                    )
                    rows["plb"].append(str(loss))
        half = len(rows["geocode"]) // 2
        for part, where in enumerate((slice(None, half), slice(half, None))):
            write(
                measured / "dpqueries" / f"part-{part}.parquet",
                {name: column[where] for name, column in rows.items()},
            )
        write(
            measured / "constraints" / "part-0.parquet",
            constraint_rows(schema, level, names, in_geounit, counts, housing_units),
        )
    write(
        run / "spine" / schema.universe / "geounits.parquet",
        {name: [row[name] for row in geounits] for name in geounits[0]},
    )
    write(run / "spine" / schema.universe / "blocks.parquet", ancestors.to_dict(orient="list"))


def constraint_rows(schema, level, names, in_geounit, counts, housing_units) -> dict:
    rows = []
    if schema is UNITS:
        for name, total in zip(names, in_geounit @ housing_units, strict=True):
            rows.append((name, "total_con", "=", [total]))
    else:
        facilities = in_geounit @ facility_matrix()
        units = in_geounit @ housing_units
        for name, unit, kinds in zip(names, units, facilities, strict=True):
            rows.append((name, "hhgq_total_lb_con", ">=", [0, *kinds]))
            rows.append((name, "hhgq_total_ub_con", "<=", [99999 * n for n in (unit, *kinds)]))
            rows.append((name, "nurse_nva_0_con", "=", [0]))
        if level == "US":
            rows.append(("0", "total_con", "=", [counts.sum()]))
        if level == "State":
            rows.append(("44", "state_total_con", "=", [counts.sum()]))
    return dict(
        zip(("geocode", "query_name", "sign", "value"), zip(*rows, strict=True), strict=True)
    )


def invariants() -> pd.DataFrame:
    frame = pd.DataFrame(facility_matrix(), columns=[f"facilities_{t}" for t in range(1, 8)])
    frame.insert(0, "housing_units", list(HOUSING_UNITS.values()))
    frame.insert(0, "block_geocode", list(PATHS))
    return frame


_CHECKED: dict[tuple, tuple] = {}
"""Outcomes of universes by what was checked."""


def where(column: str, key, **conditions) -> Callable[[pd.DataFrame], None]:
    """A change of one row: `column` becomes `key(old value)` where all conditions hold."""

    def change(frame: pd.DataFrame) -> None:
        mask = np.logical_and.reduce([frame[name] == value for name, value in conditions.items()])
        row = np.flatnonzero(mask)[0]
        frame[column] = frame[column].astype(object)
        frame.at[row, column] = key(frame.at[row, column])

    return change


@dataclass(frozen=True)
class FinishedRun:
    """A run directory of the test's own, what its settings promise, and how to spoil it."""

    path: Path
    expected: dict[str, ExpectedUniverse]
    is_private: bool

    blocks = tuple(PATHS)
    areas = pa.table({"block_geocode": list(PATHS), "facilities": facility_matrix().sum(axis=1)})

    def outcomes(self, **keywords) -> tuple[Outcome, ...]:
        """Outcomes of all checks of parts of two blocks, in pieces that know nothing of each other.

        A universe whose files have been checked before, in another run perhaps, is not checked
        again: most tests spoil one universe, and all ask that nothing fails in the other.
        """
        keywords = {"areas": self.areas, "is_private": self.is_private} | keywords
        found: list[Outcome] = []
        for universe, expected in self.expected.items():
            given = tuple(sorted((name, id(value)) for name, value in keywords.items()))
            key = (universe, id(expected), given, self._files_of(universe))
            if "release_directory" in keywords or key not in _CHECKED:
                if "blocks_per_part" in keywords:
                    outcomes = run_checks(self.path, {universe: expected}, **keywords)
                else:
                    own = replace(self, expected={universe: expected})
                    outcomes = tuple(own.outcomes_of_pieces(3, **keywords))
                # With what is told by its identity, which nothing else then has.
                _CHECKED[key] = outcomes, expected, keywords
            found += _CHECKED[key][0]
        return tuple(found)

    def _files_of(self, universe: str) -> tuple[tuple[str, bytes], ...]:
        """Path and digest of every file but those of the other universes."""
        others = {name for name in EXPECTED if name != universe}
        every = sorted(path for path in self.path.rglob("*") if path.is_file())
        found = [(path.relative_to(self.path), path) for path in every]
        return tuple(
            (str(place), sha256(path.read_bytes()).digest())
            for place, path in found
            if others.isdisjoint((*place.parent.parts, place.stem.removeprefix("mdf_")))
        )

    def failing(self, **keywords) -> set[tuple[str, str]]:
        """Universe and name of the checks that failed, after seeing that all were made."""
        outcomes = self.outcomes(**keywords)
        assert [o.name for o in outcomes] == [*CHECKS] * len(self.expected)
        assert all(outcome.detail for outcome in outcomes)
        return {(o.subject, o.name) for o in outcomes if not o.passed}

    def outcomes_of_pieces(self, n_pieces: int, **keywords) -> list[Outcome]:
        """Outcomes of all checks, made in so many pieces of each kind, the last ones first."""
        outcomes: list[Outcome] = []
        release = keywords.get("release_directory", self.path / "release")
        areas = keywords.get("areas", self.areas)
        is_private = keywords.get("is_private", self.is_private)
        run = OnceRead(self.path, self.expected, release, areas, is_private, 2)
        for universe in self.expected:
            found = [check_top(run, universe)]
            numbers = range(n_pieces)
            made = {i: check_below(run, universe, i, n_pieces) for i in reversed(numbers)}
            found += [*(made[i] for i in numbers), check_rows(run, universe)]
            findings, *others = found
            for other in others:
                findings.add(other)
            outcomes += universe_outcomes(run, universe, findings)
        return outcomes

    def detail(self, universe: str, name: str) -> str:
        """The words of one check's outcome."""
        found = [o.detail for o in self.outcomes() if (o.subject, o.name) == (universe, name)]
        return found[0]

    def spine(self, file: str, universe: str = "persons") -> Path:
        """`geounits` or `blocks`."""
        return self.path / "spine" / universe / f"{file}.parquet"

    def estimates(self, level: str, universe: str = "persons") -> Path:
        """The one file of a geolevel's estimates."""
        return self.path / "estimates" / universe / level / "part-0.parquet"

    def constraints(self, level: str, universe: str = "persons") -> Path:
        """The one file of a geolevel's constraints."""
        return self.path / "measurements" / universe / level / "constraints" / "part-0.parquet"

    def queries(self, level: str, universe: str = "persons") -> Path:
        """The first of two files of a geolevel's noisy measurements."""
        return self.path / "measurements" / universe / level / "dpqueries" / "part-0.parquet"

    def released(self, universe: str, suffix: str) -> Path:
        """A microdata file."""
        return self.path / "release" / f"mdf_{universe}.{suffix}"

    def edit(self, path: Path, change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> None:
        """Rewrite a Parquet file after `change` altered its frame in place or returned another."""
        table = pq.read_table(path)
        frame = pd.DataFrame({name: table[name].to_pylist() for name in table.column_names})
        changed = change(frame)
        frame = frame if changed is None else changed
        columns = {name: pa.array(frame[name].to_list(), from_pandas=True) for name in frame}
        pq.write_table(pa.table(columns).replace_schema_metadata(table.schema.metadata), path)

    def edit_released(
        self, universe: str, change: Callable[[pd.DataFrame], pd.DataFrame | None]
    ) -> None:
        """Change both microdata files alike."""
        path = self.released(universe, "parquet")
        self.edit(path, change)
        frame = pq.read_table(path).to_pandas()
        frame.to_csv(self.released(universe, "csv"), sep="|", index=False)

    def write_release(self) -> None:
        """Write the microdata anew from the block estimates."""
        release = self.path / "release"
        options = {"is_private": self.is_private, "rows_per_batch": 7}
        blocks = invariants()["block_geocode"]
        persons = read_block_estimates(self.path, "persons")
        counts = counts_of_table(persons, PERSONS.n_cells, blocks)
        write_microdata([counts], PERSONS, release, **options)
        units = read_block_estimates(self.path, "units")
        counts = counts_of_table(units, UNITS.n_cells, blocks)
        write_microdata([counts], UNITS, release, invariants(), **options)


@pytest.fixture(scope="session")
def right_runs(tmp_path_factory) -> dict[str, FinishedRun]:
    """A run with noise and one without; not to be changed."""
    runs = {}
    for name, expected in (("noisy", EXPECTED), ("exact", EXPECTED_WITHOUT_NOISE)):
        run = FinishedRun(tmp_path_factory.mktemp(name), expected, is_private=name == "noisy")
        write_universe(run.path, PERSONS, person_blocks(), expected["persons"])
        write_universe(run.path, UNITS, unit_blocks(), expected["units"])
        run.write_release()
        runs[name] = run
    return runs


def copied(run: FinishedRun, to: Path) -> FinishedRun:
    return replace(run, path=Path(shutil.copytree(run.path, to)), expected=dict(run.expected))


@pytest.fixture
def run(right_runs, tmp_path) -> FinishedRun:
    """A run with noise to spoil."""
    return copied(right_runs["noisy"], tmp_path / "run")


@pytest.fixture
def exact_run(right_runs, tmp_path) -> FinishedRun:
    """A run without noise to spoil."""
    return copied(right_runs["exact"], tmp_path / "exact")


def damages(path: Path, *, of_columns: int) -> Iterator[tuple[str, bytes | None]]:
    """Ways in which a file can be unusable, each in words and with its bytes; None for no file.

    Every column has so many of its five, beginning with another one than the column before.
    """
    whole = path.read_bytes()
    yield "missing", None
    yield "empty", b""
    yield "cut off", whole[: len(whole) // 2]
    yield "of other bytes", b"\xff\xfe\x00 1|2|3\n"
    if path.suffix == ".json":
        for text in ("null", "[]", "{}", '"text"', '{"levels": 3, "shards": [1]}'):
            yield f"JSON {text}", text.encode()
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        other = {
            "nulls": pa.nulls(len(table)),
            "lists": pa.array([["x"]] * len(table)),
            "texts": pa.array(["x"] * len(table)),
            "numbers": pa.array([0.5] * len(table)),
        }
        for i, name in enumerate(table.column_names):
            without = {f"without column {name}": table.remove_column(i)}
            changed = {
                f"{what} in column {name}": table.set_column(i, name, values)
                for what, values in other.items()
            }
            every = [*(without | changed).items()]
            for n in range(of_columns):
                what, damaged = every[(i + n) % len(every)]
                yield what, _parquet(damaged)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="session", params=[1, pytest.param(5, marks=pytest.mark.soak(4))])
def passes_when_damaged(request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """A function of a file and of a run's checks: the damages to that file with which they pass.

    Of every column there is one damage, and in a soak all five. The checks must not raise, and
    their words must not quote a folder. Columns that the checks have no use for are left alone:
    `unread`.
    """

    def passing(
        path: Path, outcomes: Callable[[], Iterable[Outcome]], unread: Collection[str] = ()
    ) -> list[str]:
        whole = path.read_bytes()
        unseen = []
        for what, content in list(damages(path, of_columns=request.param)):
            if what.split()[-1] in unread:
                continue
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            found = list(outcomes())
            assert not any(str(path.parent) in outcome.detail for outcome in found), what
            if all(outcome.passed for outcome in found):
                unseen.append(what)
        path.write_bytes(whole)
        assert all(outcome.passed for outcome in outcomes())
        return unseen

    return passing
