"""Reading published measurements into a run: its geography, spines, invariants and measurements.

The run directory afterwards has the files of a topdown run that has measured, so that
later stages run unchanged.

Declared invariants from published constraints, and checks that these agree.

Constraints of blocks give each block's housing units and facilities by type: the lower bound on
a type of group quarters is its number of facilities, and the upper bound on households 99,999
times the number of housing units. Constraints of all other geounits must be the sums of these, and
the nation's total the sum of the states'.

From published rows to the measurement files of a run, shard by shard.

Published rows may be in any order. They are read once, in batches, and entered in the order of the
spine in arrays of each shard, which is written when its rows are complete. The arrays are temporary
files that are mapped, so that memory is bounded by what the system leaves there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....geography.levels import Geolevel, Spine
from ....validation.rules import applicable_rules
from ...answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from ...census.cef_2020 import CENSUS, N_TYPES
from ...census.cef_tables import load_geography
from ...census.invariants import FACILITY_COLUMNS, read_geography, write_state_totals
from ...census.queries import MarginalQuery, Schema, incidence, marginal_query
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.stamps import write_frame
from ...tables.area_lists import read_texts
from ...tables.findings import refusal, refuse_unreadable
from ...tables.sources import input_files
from ...tables.value_tallies import ValueTally
from ..measurement.constraints import constraint_name
from ..measurement.measure import ANSWERS_PER_ROW_GROUP
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.build import declares_state_totals, store_spine
from ..spine.files import Shard, shards_of, spine_of
from ..workload.budget import Budget
from .geounits import query_of, read_spine_of, rows_by_query
from .layout import (
    STATE_TOTAL,
    TOTAL_CONSTRAINT,
    MeasurementFolder,
    address_bounds,
    open_folder,
    read_rows,
    refuse_first,
)

PERSONS, UNITS = "persons", "units"
BLOCK = "Block"

MOST_PERSONS_PER_ADDRESS = max(bound.at_most or 0 for bound in CENSUS.universes[PERSONS].bounds)
"""Most persons per housing unit or facility of the 2020 census."""


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """Counts from a universe's block constraints, by block of its spine.

    housing_units : (n,), facilities : (n, T) by type, or the sum of all; None where not published.
    constraints : the constraints that say so, as `read_constraints` has them.
    """

    housing_units: np.ndarray
    facilities: np.ndarray | None
    constraints: Mapping[str, np.ndarray]


def read_totals(
    folder: MeasurementFolder, settings: TopdownSettings, states: np.ndarray
) -> dict[str, int]:
    """The exact population of every state of `states` (FIPS), empty without declared totals.

    From the file that the settings name (columns geocode and value; a state's code is FIPS), else
    from the constraints of a run's own folder. Raises InputRefused for a file that cannot be read
    or lacks a state, and where totals are needed and missing.
    """
    if not declares_state_totals(settings):
        return {}
    path = settings.input.paths().get("state_totals")
    found = _totals_of_folder(folder) if path is None else _totals_of_file(Path(path))
    missing = [state for state in states.tolist() if state not in found]
    if missing and path is None:
        raise InputRefused(
            f"The population of state {missing[0]} is exact and not in {folder.root}; name the "
            "file of published totals as input.state_totals (columns geocode and value)."
        )
    if missing:
        raise InputRefused(
            f"{Path(str(path)).name} has no total of state {missing[0]}, where {folder.root} has "
            "measurements; add its row."
        )
    return {state: found[state] for state in states.tolist()}


def _totals_of_file(path: Path) -> dict[str, int]:
    remedy = "a table of the columns geocode (FIPS) and value, as CSV or Parquet"
    table = read_texts(path, ("geocode", "value"))
    try:
        codes = [f"{int(code):02d}"[-2:] for code in table["geocode"]]
        values = [int(value) for value in table["value"]]
    except (ValueError, KeyError):
        what = f"{path.name} cannot be read; input.state_totals names {remedy}."
        raise InputRefused(what) from None
    twice = sorted({code for code in codes if codes.count(code) > 1})
    if twice:
        raise InputRefused(f"{path.name} has state {twice[0]} twice; take one of the rows out.")
    if any(value < 0 for value in values):
        raise InputRefused(f"{path.name} has a total below 0; correct it.")
    return dict(zip(codes, values, strict=True))


def _totals_of_folder(folder: MeasurementFolder) -> dict[str, int]:
    """State totals in the constraints of a run's own folder; none in the published layout."""
    found: dict[str, int] = {}
    level = folder.universes.get(PERSONS, {}).get("State")
    for path in () if level is None else level.constraints:
        for rows in read_rows(folder, path, ["geocode", "query_name", "value"]):
            table = rows.table.to_pandas()
            own = table[table["query_name"] == STATE_TOTAL]
            found |= {
                str(code)[-2:]: int(values[0])
                for code, values in zip(own["geocode"], own["value"], strict=True)
            }
    return found


def read_blocks(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, spine: Spine
) -> BlockCounts:
    """Housing units and facilities of every block of a spine, from the constraints on blocks.

    Raises InputRefused, naming the file and the geocode, for constraints that are missing, occur
    twice, have another number of answers, or are not such bounds.
    """
    schema, level = settings.schema_of(universe), spine.geolevel(BLOCK)
    found = read_constraints(folder, settings, universe, spine, BLOCK)
    if universe == UNITS:
        return BlockCounts(found[TOTAL_CONSTRAINT][:, 0], None, found)
    lower, upper = (found[name] for name in address_bounds(schema))
    addresses, rest = np.divmod(upper, MOST_PERSONS_PER_ADDRESS)
    is_odd = (rest != 0).any(axis=1)
    if _n_types(schema) > 1:
        is_odd |= (addresses[:, 1:] != lower[:, 1:]).any(axis=1) | (lower[:, 0] != 0)
        housing_units, facilities = addresses[:, 0], lower[:, 1:]
    else:
        is_odd |= addresses[:, 0] < lower[:, 0]
        housing_units, facilities = addresses[:, 0] - lower[:, 0], lower
    what = (
        "are not 1 to 99,999 persons a facility and at most 99,999 a housing unit; fetch the file "
        "again"
    )
    place = folder.place(universe, BLOCK)
    refuse_first(place, is_odd, level.geocode, what, "the bounds of ")
    return BlockCounts(housing_units, facilities, found)


def block_invariants_of(
    geography: pd.DataFrame, blocks: Mapping[str, tuple[Spine, BlockCounts]]
) -> pd.DataFrame:
    """The invariants frame of a run: every block of the geography, zeros off the spines.

    `blocks` has the spine and the counts of each universe. Raises InputRefused where universes
    disagree on a block, or on which blocks are inhabitable.
    """
    index = pd.Index(geography["block_geocode"])
    housing_units = np.zeros(len(geography), dtype=np.int64)
    facilities = np.zeros((len(geography), len(FACILITY_COLUMNS)), dtype=np.int64)
    placed: dict[str, np.ndarray] = {}
    for universe, (spine, counts) in blocks.items():
        place = index.get_indexer(np.asarray(spine.block_geocode, dtype=object))
        own = np.zeros(len(geography), dtype=np.int64)
        own[place] = counts.housing_units
        for other, known in placed.items():
            differs = np.flatnonzero(own != housing_units)
            what = f"has other numbers of housing units in {universe} and {other}"
            _refuse_blocks(geography, differs, what)
            what = f"is on one of the spines of {universe} and {other} alone"
            _refuse_blocks(geography, np.setxor1d(place, known), what)
        housing_units, placed[universe] = own, place
        if counts.facilities is not None:
            width = counts.facilities.shape[1]
            facilities[place[:, None], np.arange(len(FACILITY_COLUMNS))[-width:]] = (
                counts.facilities
            )
    columns = {"block_geocode": geography["block_geocode"], "housing_units": housing_units}
    return pd.DataFrame(columns | dict(zip(FACILITY_COLUMNS, facilities.T, strict=True)))


def refuse_inconsistent(
    folder: MeasurementFolder,
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    counts: BlockCounts,
    totals: Mapping[str, int],
) -> None:
    """Refuse constraints of any geounit that are not the sums of the blocks'.

    `totals` are the exact populations of the states, which must add up to the nation's.
    """
    expected = {name: counts.constraints[name] for name in _required(settings, universe)}
    what = (
        "is not the sum of those below it; fetch the files of all geolevels again, and check "
        "input.state_totals"
    )
    for level in reversed(spine.geolevels[:-1]):
        into = incidence(spine.ancestors(level.name), len(level))
        sums = {name: into @ values for name, values in expected.items()}
        if universe != UNITS and level.name == "US" and totals:
            sums[TOTAL_CONSTRAINT] = np.array([[sum(totals.values())]])
        found = read_constraints(folder, settings, universe, spine, level.name)
        place = folder.place(universe, level.name)
        for name in sums:
            is_wrong = (found[name] != sums[name]).any(axis=1) & (found[name][:, 0] >= 0)
            refuse_first(place, is_wrong, level.geocode, what, f"the constraint {name} of ")


def read_constraints(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, spine: Spine, geolevel: str
) -> dict[str, np.ndarray]:
    """Values (n, k) of a geolevel's geounits by constraint, -1 where the files have none.

    Refuses unknown, repeated and missing constraints, answers of another number, and structural
    zeros that are not.
    """
    schema, level = settings.schema_of(universe), spine.geolevel(geolevel)
    zeros = [constraint_name(zero.name) for zero in settings.zeros_of(universe)]
    bounds = dict.fromkeys(address_bounds(schema), _n_types(schema))
    widths = {TOTAL_CONSTRAINT: 1, **bounds, **dict.fromkeys(zeros, 1)}
    found = {
        name: np.full((len(level), width), -1, dtype=np.int64) for name, width in widths.items()
    }
    paths = folder.level(universe, geolevel).constraints
    for name, own, place in rows_by_query(folder, paths, level, ["value"]):
        geocode, whose = level.geocode[place], f"the constraint {name} of "
        is_unknown = np.full(place.size, name not in widths)
        what = f"has the constraint {name}, which is not known; name the preset that declares it"
        own.refuse_where(is_unknown, geocode, what)
        what = f"does not have {widths[name]} values; fetch the file again"
        values = own.numbers("value", widths[name], geocode, what, whose)
        what = f"has the constraint {name} twice; fetch the file again"
        own.refuse_repeated(place, found[name][place, 0] >= 0, level.geocode, what)
        if name in zeros:
            whose = f"the structural zero {name} of "
            what = "is not 0; fetch the file again"
            own.refuse_where((values != 0).any(axis=1), geocode, what, whose)
        found[name][place] = values
    for name in _required(settings, universe):
        what = f"has no constraint {name}; fetch its files again"
        refuse_first(folder.place(universe, geolevel), found[name][:, 0] < 0, level.geocode, what)
    return found


def _required(settings: TopdownSettings, universe: str) -> Sequence[str]:
    """The constraints that every geounit must have: bounds by addresses, or the exact total."""
    return address_bounds(settings.schema_of(universe)) or [TOTAL_CONSTRAINT]


def _n_types(schema: Schema) -> int:
    """Number of types that have bounds of their own."""
    bounds = CENSUS.universes[schema.universe].bounds
    return N_TYPES if any(bound.query in schema.attributes for bound in bounds) else 1


def _refuse_blocks(geography: pd.DataFrame, rows: np.ndarray, what: str) -> None:
    """Refuse the first of some blocks, if there are any."""
    if rows.size:
        raise InputRefused(
            f"Block {geography['block_geocode'].iloc[rows[0]]} {what}; fetch the files of both "
            "again."
        )


def folder_of(settings: TopdownSettings) -> MeasurementFolder:
    """The measurements that the settings name: of the nation, or of Puerto Rico alone.

    The root of the budgets' geolevels decides.
    """
    roots = {next(iter(settings.budget[name].geolevels)) for name in settings.run.universes}
    path = settings.input.paths()["measurements"]
    folder = open_folder(path)
    wanted = "US" if "US" in roots else "PR"
    return folder if folder.product in (None, wanted) else open_folder(path, wanted)


def read_public_geography(settings: TopdownSettings) -> pd.DataFrame:
    """The geography frame, checked against the rules on geography files; raises InputRefused."""
    files = input_files("geography", settings.input.paths()["geography"])
    evidence = ValueTally()
    with refuse_unreadable():
        frame, _ = load_geography(files, evidence)
    rules = applicable_rules(evidence.suites)
    if findings := evidence.findings(rules, {"geography": files}):
        raise refusal(findings, with_counts=True)
    return frame


def write_public_geography(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the geography of a run from the file that the settings name."""
    write_frame(geography_file(run), read_public_geography(settings))


def write_measured_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Write the spine that a universe was measured on, and cut it; the shards come last."""
    blocks = pq.read_table(geography_file(run), columns=["block_geocode"])["block_geocode"]
    spine = read_spine_of(folder_of(settings), settings, universe, blocks.to_numpy())
    store_spine(run, settings, universe, spine)


def write_derived_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the invariants derived from the constraints, after checking all constraints.

    The state totals come last: their file marks completion.
    """
    geography = read_geography(geography_file(run))
    spines = {name: spine_of(run, name) for name in settings.run.universes}
    invariants, totals = _invariants(folder_of(settings), settings, geography, spines)
    write_frame(invariants_file(run), invariants)
    write_state_totals(state_totals_file(run), totals)


def check_measurements(settings: TopdownSettings) -> None:
    """Check all that `estimate` reads, and write nothing; raises InputRefused."""
    folder = folder_of(settings)
    geography = read_public_geography(settings)
    blocks = geography["block_geocode"].to_numpy(dtype=object)
    universes = settings.run.universes
    spines = {name: read_spine_of(folder, settings, name, blocks) for name in universes}
    _invariants(folder, settings, geography, spines)
    for universe, spine in spines.items():
        for geolevel in spine.names:
            check_level(folder, settings, universe, spine, geolevel)


def _invariants(
    folder: MeasurementFolder,
    settings: TopdownSettings,
    geography: pd.DataFrame,
    spines: dict[str, Spine],
) -> tuple[pd.DataFrame, dict[str, int]]:
    """The invariants frame and the state totals, consistent with every constraint."""
    counts = {u: read_blocks(folder, settings, u, spine) for u, spine in spines.items()}
    invariants = block_invariants_of(
        geography, {name: (spine, counts[name]) for name, spine in spines.items()}
    )
    first = next(iter(spines.values()))
    states = np.unique([code[:2] for code in first.block_geocode])
    totals = read_totals(folder, settings, states)
    for name, spine in spines.items():
        refuse_inconsistent(folder, settings, name, spine, counts[name], totals)
    return invariants, totals


def refuse_missing_folder(settings: TopdownSettings) -> None:
    """Raise InputRefused where the measurements or the geography in the settings do not exist."""
    folder_of(settings)
    path = settings.input.paths()["geography"]
    if "://" not in path and not Path(path).exists():
        raise InputRefused(f"{path} does not exist; correct input.geography.")


def write_level(
    run: RunDirectory,
    settings: TopdownSettings,
    folder: MeasurementFolder,
    universe: str,
    geolevel: str,
) -> None:
    """Write the measurement files of all shards of a geolevel.

    Raises InputRefused, naming the file and the geocode, for answers that do not have the number or
    the shape of their query.
    """
    spine = spine_of(run, universe)
    budget, level = settings.budget_of(universe), spine.geolevel(geolevel)
    shards = [s for s in shards_of(run, universe) if s.geolevel == geolevel]
    scratch = run.measurements(universe, geolevel)
    for shard, answers in shard_answers(folder, settings, universe, spine, shards, scratch):
        write_measurements(
            run.dpqueries(universe, geolevel, shard.name),
            _row_groups(level, shard, answers, budget),
        )


def shard_answers(
    folder: MeasurementFolder,
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    shards: Sequence[Shard],
    scratch: Path,
) -> Iterator[tuple[Shard, Mapping[MarginalQuery, np.ndarray]]]:
    """Every shard of a geolevel with the answers of its measured geounits, by query.

    The answers are (n_measured, n_rows), in the order of the spine and of the budget's queries. The
    shards come as their rows are complete. `scratch` is a folder for temporary files.
    """
    geolevel = shards[0].geolevel
    level, queries = spine.geolevel(geolevel), _queries(settings, universe, geolevel)
    starts = np.array([shard.start for shard in shards])
    row = np.cumsum(~level.bypassed) - 1
    n_measured = np.add.reduceat((~level.bypassed).astype(np.int64), starts)
    before, n_left = np.cumsum(n_measured) - n_measured, n_measured * len(queries)
    for position in np.flatnonzero(n_left == 0).tolist():
        yield shards[position], {}
    scratch.mkdir(parents=True, exist_ok=True)
    parts: dict[int, list[np.ndarray]] = {}
    for number, place, values in _answers(folder, universe, level, queries):
        of_row = np.searchsorted(starts, place, side="right") - 1
        for position in np.unique(of_row).tolist():
            if position not in parts:
                n = n_measured[position]
                parts[position] = [_mapped(scratch, (n, query.n_rows)) for query in queries]
            rows = np.flatnonzero(of_row == position)
            parts[position][number][row[place[rows]] - before[position]] = values[rows]
            n_left[position] -= rows.size
            if not n_left[position]:
                yield shards[position], dict(zip(queries, parts.pop(position), strict=True))
    if n_left.any():
        raise InputRefused(
            f"{folder.root}: measurements of {universe} at {geolevel} have changed while "
            "they were read; begin again."
        )


def check_level(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, spine: Spine, geolevel: str
) -> None:
    """Refuse answers of a geolevel that do not have the number or the shape of their query."""
    queries = _queries(settings, universe, geolevel)
    for _ in _answers(folder, universe, spine.geolevel(geolevel), queries):
        pass


def _queries(settings: TopdownSettings, universe: str, geolevel: str) -> list[MarginalQuery]:
    """The queries that are measured at a geolevel."""
    schema, shares = settings.schema_of(universe), settings.budget_of(universe).query_shares
    return [marginal_query(schema, name) for name in shares[geolevel]]


REMEDY = "fetch the file again, or name the preset that the measurements were made with"


def _answers(
    folder: MeasurementFolder, universe: str, level: Geolevel, queries: Sequence[MarginalQuery]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Rows of a geolevel's files by query: its number, the geounits (m,), and the answers
    (m, n_rows); none without queries."""
    number = {query.name: position for position, query in enumerate(queries)}
    paths = folder.level(universe, level.name).measurements if queries else ()
    for name, own, place in rows_by_query(folder, paths, level, ["value"], ["query_shape"]):
        position = number[query_of(name)]
        query, geocode = queries[position], level.geocode[place]
        whose = f"the answers to {query.name} of "
        what = f"do not have {query.n_rows} values; {REMEDY}"
        values = own.numbers("value", query.n_rows, geocode, what, whose)
        if "query_shape" in own.table.column_names:
            what = f"do not have the shape {list(query.shape)}; {REMEDY}"
            shapes = own.numbers("query_shape", len(query.shape), geocode, what, whose)
            own.refuse_where((shapes != query.shape).any(axis=1), geocode, what, whose)
        yield position, place, values


def _mapped(folder: Path, shape: tuple[int, int]) -> np.ndarray:
    """An array of this shape in a file of a folder that is removed with it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype=np.int64, mode="w+", shape=shape)


def _row_groups(
    level: Geolevel, shard: Shard, answers: Mapping[MarginalQuery, np.ndarray], budget: Budget
) -> Iterator[list[NoisyAnswers]]:
    """The answers as a run's files have them; variances and losses are exact again."""
    measured = shard.start + np.flatnonzero(~level.bypassed[shard.start : shard.stop])
    if not measured.size or not answers:
        return
    step = max(1, ANSWERS_PER_ROW_GROUP // sum(query.n_rows for query in answers))
    for start in range(0, measured.size, step):
        rows = measured[start : start + step]
        code = level.plb_share_code[rows]
        group = []
        for query, values in answers.items():
            asked = budget.query_shares[level.name][query.name]
            variance, plb = np.zeros(rows.size), np.full(rows.size, "", dtype=object)
            for members, noise, spent in budget.noises(level.plb_shares, code, asked):
                variance[members], plb[members] = noise.variance, spent
            name = query.name + DPQUERY_SUFFIX
            group.append(
                NoisyAnswers(name, level.geocode[rows], values[start : start + step], variance, plb)
            )
        yield group
