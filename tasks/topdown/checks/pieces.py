"""The checks of a run, in pieces that workers make side by side.

What a piece has found is kept with the state of every file that the checks read, taken before the
piece began; see `kept`. All of it is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from ....validation.outcome import Outcome
from ....validation.topdown.agreements import check_agreement
from ....validation.topdown.area_index import BLOCK_GEOCODE
from ....validation.topdown.margins import check_margins
from ....validation.topdown.microdata import FACILITIES
from ....validation.topdown.run_checks import (
    CheckedRun,
    Findings,
    check_below,
    check_rows,
    check_top,
    universe_outcomes,
)
from ....validation.topdown.table_rows import Tabulated
from ....validation.topdown.tabulations import (
    TableFailures,
    check_files,
    check_states,
    no_failures,
    table_outcomes,
)
from ...census.areas import code_columns
from ...census.invariants import FACILITY_COLUMNS, read_geography
from ...runs.directory import RunDirectory
from ...runs.files import read_declared
from ..paths import geography_file, invariants_file, spine_folder
from ..release.margins import written_margins
from ..release.tabulations.run import (
    has_legacy,
    tabulated_universes,
)
from ..release.tabulations.tables import States
from ..settings import TopdownSettings
from .declared import declared_universe, expected_agreements
from .expectations import expected_universe
from .kept import keep, kept, state_of
from .tabulated import tabulated

BLOCKS_PER_PIECE = 1 << 16
MOST_PIECES = 8
"""Pieces of one kind: each reads what is common to all of them, which is seconds for a nation."""
LEAST_APART = 1 << 12
"""Size of the smallest piece that is worth a task of its own, which takes a tenth of a second; a
state's are, a county's are not."""

TOP, BELOW, ROWS, FILES, STATES, MARGINS = "top", "below", "rows", "files", "states", "margins"
TABLES = "tables"

_FINDINGS, _OF_TABLES = TypeAdapter(Findings), TypeAdapter(TableFailures)
"""They read back what a piece has found."""

_WEIGHTS = read_declared(Path(__file__).parent / "presets" / "weights.toml")
"""What pieces take beside each other, by kind and universe."""


@dataclass(frozen=True)
class Piece:
    """A share of the checks of a universe or, as `subject`, of the tables: `number` of `of`."""

    kind: str
    subject: str
    number: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        """What names it among the pieces of a run."""
        return f"{self.subject}-{self.kind}-{self.number}-of-{self.of}"


def pieces(run: RunDirectory, settings: TopdownSettings) -> list[Piece]:
    """All pieces of the checks of a run, in the order in which their findings are put together."""
    every = []
    for universe in settings.run.universes:
        n_pieces = _n_pieces(spine_folder(run, universe) / "blocks.parquet")
        every.append(Piece(TOP, universe))
        every += [Piece(BELOW, universe, number, n_pieces) for number in range(n_pieces)]
        every.append(Piece(ROWS, universe))
    if tabulated_universes(settings):
        n_pieces = min(_n_pieces(geography_file(run)), len(States.read(run).fips))
        every.append(Piece(FILES, TABLES))
        every += [Piece(STATES, TABLES, number, n_pieces) for number in range(n_pieces)]
    if written_margins(run, settings):
        every.append(Piece(MARGINS, TABLES))
    return every


def pieces_apart(run: RunDirectory, settings: TopdownSettings) -> list[Piece]:
    """The pieces that are worth a task of their own, the longest first; none of a small run."""
    sizes = {piece: _size(run, piece) for piece in pieces(run, settings)}
    apart = [piece for piece, size in sizes.items() if size >= LEAST_APART or piece.of > 1]
    return sorted(apart, key=sizes.__getitem__, reverse=True)


def _weight(kind: str, subject: str) -> float:
    of_kind = _WEIGHTS[kind]
    return of_kind[subject if subject in of_kind else "persons"]


def _size(run: RunDirectory, piece: Piece) -> float:
    universe = "persons" if piece.subject == TABLES else piece.subject
    blocks = spine_folder(run, universe) / "blocks.parquet"
    path = blocks if blocks.exists() else geography_file(run)
    weight = _weight(piece.kind, piece.subject)
    if piece.of == 1 and piece.kind in (TOP, BELOW):  # A spine that is not cut is all top.
        whole = _weight(TOP, piece.subject) + _weight(BELOW, piece.subject)
        weight = whole if piece.kind == TOP else 0.0
    return pq.read_metadata(path).num_rows * weight / piece.of


def findings_file(run: RunDirectory, piece: Piece) -> Path:
    """Where the findings of a piece are."""
    return run.checks / "pieces" / f"{piece.name}.json"


def state_of_files(run: RunDirectory) -> str:
    """The state of all files that the checks read; see `state_of`."""
    return state_of(run, _files(run))


def write_findings(run: RunDirectory, settings: TopdownSettings, piece: Piece) -> Path:
    """Check a piece and write what was found."""
    state = state_of_files(run)
    keep(findings_file(run, piece), state, checked_piece(run, settings, piece))
    return findings_file(run, piece)


def read_findings(run: RunDirectory, piece: Piece, state: str) -> Mapping[str, Any] | None:
    """What was found when the files were in this state; None if nothing was, or it is unusable."""
    return kept(findings_file(run, piece), state)


def checked_piece(
    run: RunDirectory, settings: TopdownSettings, piece: Piece, checked: CheckedRun | None = None
) -> dict[str, Any]:
    """What a piece finds, in values that JSON has; `checked` has what is promised of its universe,
    where that is known already.
    """
    if piece.kind == MARGINS:
        return {MARGINS: asdict(check_margins(run.unchecked_release))}
    if piece.subject == TABLES:
        failures = no_failures(has_legacy=has_legacy(settings))
        if piece.kind == FILES:
            check_files(_tabulated(run, settings, None), failures)
        else:
            check_states(_tabulated(run, settings, piece), failures)
        return {name: asdict(found) for name, found in failures.items()}
    checked = checked or checked_run(run, settings, (piece.subject,))
    if piece.kind == TOP:
        found = check_top(checked, piece.subject)
    elif piece.kind == BELOW:
        found = check_below(checked, piece.subject, piece.number, piece.of)
    else:
        found = check_rows(checked, piece.subject)
    return asdict(found)


def outcomes_of_pieces(run: RunDirectory, settings: TopdownSettings) -> list[Outcome]:
    """The outcomes of all checks; what no piece has found yet, or not in this state, is checked."""
    state, checked = state_of_files(run), checked_run(run, settings, settings.run.universes)
    universes = {universe: Findings() for universe in settings.run.universes}
    of_tables: list[TableFailures] = []
    of_margins: list[Outcome] = []
    for piece in pieces(run, settings):
        found = read_findings(run, piece, state)
        if found is None:
            found = checked_piece(run, settings, piece, checked)
        if piece.kind == MARGINS:
            of_margins.append(Outcome(**found[MARGINS]))
        elif piece.subject == TABLES:
            of_tables.append(_OF_TABLES.validate_python(found))
        else:
            universes[piece.subject].add(_FINDINGS.validate_python(found))
    agreeing = [check_agreement(expected) for expected in expected_agreements(run, settings)]
    outcomes: list[Outcome] = []
    for universe, findings in universes.items():
        outcomes += universe_outcomes(checked, universe, findings)
    if of_tables:
        of_files, *of_states = of_tables
        outcomes += table_outcomes(of_files, of_states)
    return [*outcomes, *agreeing, *of_margins]


def checked_run(
    run: RunDirectory, settings: TopdownSettings, universes: Sequence[str]
) -> CheckedRun:
    """Universes' files, and what is promised of them and of those that they must agree with."""
    if not settings.compiled_census.area_rules.promises_need_areas:
        expected = {universe: expected_universe(settings, universe) for universe in universes}
        layouts = [one.layout for one in expected.values() if one.layout is not None]
        areas = _facilities(run) if any(layout.further for layout in layouts) else None
    else:
        frame = read_geography(geography_file(run))
        expected = {
            name: declared_universe(run, settings, name, frame) for name in settings.run.universes
        }
        geolevels = code_columns(settings.compiled_census.geolevels, frame.columns)
        areas = pa.Table.from_pandas(frame[[BLOCK_GEOCODE, *geolevels]], preserve_index=False)
    return CheckedRun(run.root, expected, run.unchecked_release, areas, settings.is_private)


def _facilities(run: RunDirectory) -> pa.Table:
    invariants = pq.read_table(invariants_file(run), columns=[BLOCK_GEOCODE, *FACILITY_COLUMNS])
    total = reduce(pc.add, map(invariants.column, FACILITY_COLUMNS))
    return pa.table({BLOCK_GEOCODE: invariants[BLOCK_GEOCODE], FACILITIES: total})


def _tabulated(run: RunDirectory, settings: TopdownSettings, piece: Piece | None) -> Tabulated:
    """What to check of the tables, with the geography of a piece's states alone, none without."""
    states = States.read(run)
    own = () if piece is None else states.group(piece.number, piece.of)
    state = pc.utf8_slice_codeunits(pc.field("block_geocode"), 0, 2)
    codes = pq.read_table(geography_file(run), columns=["block_geocode"])["block_geocode"]
    group, first_digit = (pc.utf8_slice_codeunits(codes, i, i + 1) for i in (11, 12))
    return tabulated(
        run.unchecked_release,
        pq.read_table(
            geography_file(run), filters=state.isin(pa.array(own, codes.type))
        ).to_pandas(),
        [settings.schema_of(name) for name in tabulated_universes(settings)],
        is_private=settings.is_private,
        states=states.fips,
        has_group=bool(pc.any(pc.not_equal(group, first_digit), min_count=0).as_py()),
    )


def _n_pieces(path: Path) -> int:
    """Pieces for a file with a row for every block."""
    n_blocks = pq.read_metadata(path).num_rows
    return max(1, min(MOST_PIECES, -(-n_blocks // BLOCKS_PER_PIECE)))


def _files(run: RunDirectory) -> Iterator[Path]:
    """The public files that checks read."""
    yield from (run.root / "spine").glob("*.*")
    for pattern in ("geounits.parquet", "blocks.parquet"):
        yield from (run.root / "spine").glob(f"*/{pattern}")
    for folder in (run.root / "estimates", run.root / "measurements", run.unchecked_release):
        yield from (path for path in folder.rglob("*") if path.is_file())
