"""The redistricting tables of a release: recounted from its microdata, and repeated in P.L. 94-171.

Which rows of microdata a variable counts comes as plain facts, the codes that columns must have;
rows are counted by them here, not with the code that made the tables. Whatever is compared is read
in streams, and microdata are counted state by state; memory is that of the blocks of the largest
state and of the distinct rows that its blocks have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from scipy import sparse

from ..outcome import Failures, Outcome
from ..run_files import BLOCK_OF_TEXT, UnusableRunFile, check_stamp, is_stamped, unusable_files_fail
from .legacy import check_legacy, check_legacy_states
from .row_counts import BlockCounts, count_rows
from .table_rows import (
    Place,
    TableRows,
    Tabulated,
    gathered,
    have_same_rows,
    wide_batches,
)

RELEASE = "release"
"""What the outcomes of these checks name in place of a universe."""

COUNT, REPEAT = "tables_count_the_microdata", "pl94171_repeats_the_tables"
CHECKS: Mapping[str, str] = {
    COUNT: "every variable of every entity, at eight summary levels",
    REPEAT: "the four files of each state, record by record",
}
"""Each check's name, and what it found when it passed."""

TableFailures = Mapping[str, Failures]
"""By check; of the second where there are P.L. 94-171 files."""

_STATE = "STATE"


def no_failures(*, has_legacy: bool) -> TableFailures:
    """None yet."""
    return {name: Failures() for name in CHECKS if has_legacy or name != REPEAT}


def table_outcomes(of_files: TableFailures, of_states: Sequence[TableFailures]) -> list[Outcome]:
    """The outcomes of the checks of whole files and of states, in order; where files are wrong as a
    whole, what is wrong with their states is not told.
    """
    for name, own in of_files.items():
        for further in of_states if not own.count else ():
            _extend(own, further[name])
    return [own.outcome(name, RELEASE, CHECKS[name]) for name, own in of_files.items()]


def _extend(failures: Failures, later: Failures) -> None:
    """Add failures of other states; a file that none of them can use is told once."""
    if later.texts != failures.texts[: len(later.texts)] or not later.texts:
        failures.extend(later)


def check_files(release: Tabulated, failures: TableFailures) -> None:
    """What is checked of whole files: text against Parquet, variables, and the order of states."""
    with unusable_files_fail(failures[COUNT]):
        for stem in release.place.levels:
            _compare_text(release, stem, failures[COUNT])
        for stem in release.place.levels:
            with TableRows(release.table(stem)) as rows:
                shown = list(rows.ranges)
            if shown != [state for state in release.states if state in shown]:
                failures[COUNT].add(_other_entities(release, stem))
    if REPEAT in failures:
        with unusable_files_fail(failures[REPEAT]):
            check_legacy_states(release, failures[REPEAT])


def check_states(release: Tabulated, failures: TableFailures) -> None:
    """What is checked state by state, of the states in `release.geography`: entities, counts of
    the microdata, sums over blocks, and P.L. 94-171 files.
    """
    states = release.geography["block_geocode"].str[:2].unique().tolist()
    with unusable_files_fail(failures[COUNT]):
        _check_counts(release, states, failures[COUNT])
    if REPEAT in failures:
        with unusable_files_fail(failures[REPEAT]):
            check_legacy(release, states, failures[REPEAT])


def _other_entities(release: Tabulated, stem: str) -> str:
    what = "blocks" if stem == release.place.finest else "entities"
    return f"{stem}.parquet does not have the {what} of the geography"


def _check_counts(release: Tabulated, states: Sequence[str], failures: Failures) -> None:
    """Check the rows that some states have in every table; states are in the order of tables."""
    place, frame = release.place, release.geography
    blocks = frame["block_geocode"].to_numpy(dtype=object).astype("U16")
    counted = [
        count_rows(
            release.directory / f"mdf_{universe}.parquet",
            place.microdata,
            {n: v for n, v in enumerate(release.variables) if v.universe == universe},
            blocks,
        )
        for universe in release.universes
    ]
    state_of_block = frame["block_geocode"].str[:2]
    with ExitStack() as stack:
        rows = {
            stem: stack.enter_context(TableRows(release.table(stem), ["GEOCODE", *release.names]))
            for stem in place.levels
        }
        for state in states:
            here = np.flatnonzero(state_of_block == state)
            parts = _parts(frame.iloc[here], place)
            _check_state(release, parts, rows, counted, int(here[0]), failures)


def _check_state(
    release: Tabulated,
    parts: Mapping[str, np.ndarray],
    rows: Mapping[str, TableRows],
    counted: Sequence[BlockCounts],
    first: int,
    failures: Failures,
) -> None:
    """Check a state's rows of every table; `parts` (n_blocks,) are codes of its blocks, of which
    `counted` has the one at `first` and those that follow.
    """
    state, names, finest = str(parts[_STATE][0]), release.names, release.place.finest
    upper: dict[str, tuple[pa.Table, np.ndarray, sparse.csr_array]] = {}
    for stem in release.place.levels:
        code = _codes(parts, stem, release)
        if stem == finest:
            break
        inside = np.flatnonzero(code != "")
        entities, entity = np.unique(code[inside], return_inverse=True)
        table = pa.Table.from_batches(rows[stem].of_state(state), rows[stem].schema)
        if table["GEOCODE"].to_pylist() != entities.tolist():
            failures.add(_other_entities(release, stem))
            return
        ones = np.ones(inside.size, dtype=np.int64)
        shape = (len(entities), len(code))
        within = sparse.csr_array(sparse.coo_array((ones, (entity, inside)), shape=shape))
        upper[stem] = table, np.zeros((len(entities), len(names)), dtype=np.int64), within
    n_seen = 0
    for batch in gathered(rows[finest].of_state(state)):
        here = slice(n_seen, n_seen + batch.num_rows)
        n_seen += batch.num_rows
        if batch.column("GEOCODE").to_pylist() != code[here].tolist():
            failures.add(_other_entities(release, finest))
            return
        counts = np.zeros((batch.num_rows, len(names)), dtype=np.int64)
        blocks = slice(first + here.start, first + here.stop)
        for of_universe in counted:
            of_universe.add_to(counts, blocks)
            for _, total, within in upper.values():
                of_universe.add_sums_to(total, within[:, here], blocks)
        _check_blocks(release, code[here], counts, _values(batch, names), failures)
    if n_seen != len(code):
        failures.add(_other_entities(release, finest))
        return
    for stem, (table, total, _) in upper.items():
        wrong = np.argwhere(total != _values(table, names))
        if len(wrong):
            geocode = table["GEOCODE"][int(wrong[0][0])]
            failures.add(
                f"{names[wrong[0][1]]} of {geocode} in {stem}.parquet is not the sum over its "
                "blocks",
                len(wrong),
            )


def _check_blocks(
    release: Tabulated,
    geocode: np.ndarray,
    counts: np.ndarray,
    shown: np.ndarray,
    failures: Failures,
) -> None:
    wrong = np.argwhere(counts != shown)
    if len(wrong):
        block, column = wrong[0]
        failures.add(
            f"{release.names[column]} of block {geocode[block]} is not the count of its rows",
            len(wrong),
        )


def _compare_text(release: Tabulated, stem: str, failures: Failures) -> None:
    """Compare a table's text with its Parquet file; raises UnusableRunFile if they differ, or for
    other variables than the release has.
    """
    parquet = release.table(stem)
    text = parquet.with_suffix(".csv")
    if not (parquet.is_file() and text.is_file()):
        raise UnusableRunFile(f"a table {stem} of the release is missing")
    with pq.ParquetFile(parquet) as file:
        schema = file.schema_arrow
        if not {"STATE", "GEOID", "GEOCODE"} <= set(schema.names):
            raise UnusableRunFile(f"{parquet.name} does not have its columns of geography")
        if [field.name for field in schema if pa.types.is_integer(field.type)] != release.names:
            raise UnusableRunFile(f"{parquet.name} does not have the variables of the microdata")
        for path in (parquet, text):
            check_stamp(path, is_private=release.is_private, failures=failures)
        repeated = pyarrow.csv.open_csv(
            text,
            read_options=pyarrow.csv.ReadOptions(
                skip_rows=int(is_stamped(text)), block_size=BLOCK_OF_TEXT
            ),
            convert_options=pyarrow.csv.ConvertOptions(column_types=schema.remove_metadata()),
        )
        with repeated:
            if not have_same_rows(wide_batches(file), repeated):
                raise UnusableRunFile(f"{stem}.csv and {stem}.parquet differ")


def _parts(geography: pd.DataFrame, place: Place) -> dict[str, np.ndarray]:
    geocode = geography["block_geocode"].to_numpy(dtype=object).astype("U16")
    digits = geocode.view("U1").reshape(-1, 16)

    def part(start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(digits[:, start:stop]).view(f"U{stop - start}").ravel()

    further = {name: geography[column].to_numpy() for name, column in place.columns.items()}
    return {
        "BLOCK16": geocode,
        **{name: part(*ends) for name, ends in place.digits.items()},
        **{name: values.astype("U5") for name, values in further.items()},
    }


def _codes(parts: Mapping[str, np.ndarray], stem: str, release: Tabulated) -> np.ndarray:
    """Geocode of each block's entity; the empty text for none."""
    place = release.place
    names = place.levels[stem]
    if stem == place.finest and release.has_group:
        names = (*names[:-1], "BLKGRP", names[-1])
    code = parts[names[0]]
    for name in names[1:]:
        code = np.strings.add(code, parts[name])
    if names[-1] in place.outside:
        code = np.where(parts[names[-1]] == place.outside[names[-1]], "", code)
    return code


def _values(table: pa.Table | pa.RecordBatch, variables: Sequence[str]) -> np.ndarray:
    return np.column_stack([table.column(name).to_numpy() for name in variables])
