"""Reading published measurements into a run: its geography, spines, invariants and measurements.

The run directory afterwards has the files of a topdown run that has measured, so that
later stages run unchanged.

Declared invariants from published constraints, and checks that these agree.

Constraints of blocks give each block's housing units and facilities by type: the lower bound on
a type of group quarters is its number of facilities, and the upper bound on households 99,999
times the number of housing units. Constraints of all other geounits must be the sums of these, and
the nation's total the sum of the states'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....geography.levels import Geolevel, Spine
from ....validation.input_rules import applicable_rules
from ...census.cef_2020 import CENSUS, N_TYPES
from ...census.cef_tables import load_geography
from ...census.invariants import FACILITY_COLUMNS, read_geography, write_state_totals
from ...census.queries import incidence
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.stamps import write_frame
from ...tables.area_lists import read_texts
from ...tables.findings import refusal, refuse_unreadable
from ...tables.sources import input_files
from ...tables.value_tallies import ValueTally
from ..measurement.constraints import constraint_name
from ..paths import geography_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.build import declares_state_totals, store_spine
from ..spine.files import spine_of
from .geounits import geounits_of, read_spine_of
from .layout import (
    STATE_TOTAL,
    TOTAL_CONSTRAINT,
    MeasurementFolder,
    address_bounds,
    open_folder,
    read_rows,
)
from .values import check_level

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
    levels = [level for level in folder.universes.get(PERSONS, ()) if level.geolevel == "State"]
    for path in (path for level in levels for path in level.constraints):
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
        "are not 1 to 99,999 persons a facility and at most 99,999 a housing unit; fetch the file"
    )
    _refuse_geounit(folder, universe, level, is_odd, "the bounds of ", f"{what} again")
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
        for name in sums:
            is_wrong = (found[name] != sums[name]).any(axis=1) & (found[name][:, 0] >= 0)
            _refuse_geounit(folder, universe, level, is_wrong, f"the constraint {name} of ", what)


def read_constraints(
    folder: MeasurementFolder, settings: TopdownSettings, universe: str, spine: Spine, geolevel: str
) -> dict[str, np.ndarray]:
    """Values (n, k) of a geolevel's geounits by constraint, -1 where the files have none.

    Refuses unknown, repeated and missing constraints, answers of another number, and structural
    zeros that are not.
    """
    schema, level = settings.schema_of(universe), spine.geolevel(geolevel)
    index = pd.Index(np.asarray(level.geocode, dtype=object))
    zeros = [constraint_name(zero.name) for zero in settings.zeros_of(universe)]
    bounds = dict.fromkeys(address_bounds(schema), _n_types(schema))
    widths = {TOTAL_CONSTRAINT: 1, **bounds, **dict.fromkeys(zeros, 1)}
    found = {
        name: np.full((len(level), width), -1, dtype=np.int64) for name, width in widths.items()
    }
    for path in folder.level(universe, geolevel).constraints:
        for rows in read_rows(folder, path, ["geocode", "query_name", "value"]):
            for name, own in rows.by_query():
                if name == STATE_TOTAL:
                    continue
                place = geounits_of(own, index, geolevel)
                geocode, whose = level.geocode[place], f"the constraint {name} of "
                is_unknown = np.full(place.size, name not in widths)
                what = f"has the constraint {name}, which is not known; name the preset that"
                own.refuse_where(is_unknown, geocode, f"{what} declares it")
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
        _refuse_geounit(folder, universe, level, found[name][:, 0] < 0, "", what)
    return found


def _required(settings: TopdownSettings, universe: str) -> Sequence[str]:
    """The constraints that every geounit must have: bounds by addresses, or the exact total."""
    return address_bounds(settings.schema_of(universe)) or [TOTAL_CONSTRAINT]


def _n_types(schema: Schema) -> int:
    """Number of types that have bounds of their own."""
    bounded = CENSUS.universes[schema.universe].bounded_attribute(schema)
    return N_TYPES if bounded is not None else 1


def _refuse_geounit(
    folder: MeasurementFolder,
    universe: str,
    level: Geolevel,
    is_wrong: np.ndarray,
    subject: str,
    what: str,
) -> None:
    """Refuse the first geounit of a geolevel that is wrong (n,), if any is."""
    if is_wrong.any():
        geounit = level.geocode[int(np.argmax(is_wrong))]
        place = folder.place(universe, level.name)
        raise InputRefused(f"{place}: {subject}geounit {geounit} {what}.")


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
        frame = load_geography(files, evidence).frame
    rules = applicable_rules(evidence.suites)
    if findings := evidence.findings(rules, {"geography": files}):
        raise refusal(findings, with_counts=True)
    return frame


def write_public_geography(run: RunDirectory, settings: TopdownSettings) -> int:
    """Write the geography of a run from the file that the settings name; returns its blocks."""
    frame = read_public_geography(settings)
    write_frame(geography_file(run), frame)
    return len(frame)


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
