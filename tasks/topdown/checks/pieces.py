"""The checks of a run, in pieces that workers make side by side.

The result of a piece is cached in a small file with the state of every file that the checks read,
taken before the piece began. It is used only while its inputs are unchanged; changed and missing
results are computed again. All of it is public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import TypeAdapter

from ....validation.outcome import Outcome
from ....validation.topdown.run_checks import BELOW, PLAN, STATES, CheckedRun, Findings, Piece
from ...runs.directory import RunDirectory
from ...runs.objects import cached_result, state_of, store_result
from ..settings import TopdownSettings

BLOCKS_PER_PIECE = 1 << 14
MOST_PIECES = 48
"""Pieces of one kind: each reads their common input, which takes seconds for a nation."""

_FINDINGS = TypeAdapter(Findings)
"""Reads back the findings of a piece."""


def checked_run(run: RunDirectory) -> CheckedRun:
    """The files of a run that are checked."""
    return CheckedRun(run.root, run.unchecked_release)


WORK = {PLAN: 0.0, STATES: 6.0, BELOW: 2.0}
"""How long the pieces of a kind take together, where not as long as those of another."""


def pieces_of_share(run: RunDirectory, number: int, of: int) -> list[Piece]:
    """The pieces of share `number` of `of`, each of about as much work: the part of a spine below
    its top is none if it is one piece."""
    sizes = {
        piece: 0.0 if (piece.kind, piece.of) == (BELOW, 1) else WORK.get(piece.kind, 1.0) / piece.of
        for piece in checked_run(run).pieces(_n_pieces)
    }
    shares: list[list[Piece]] = [[] for _ in range(of)]
    for piece in sorted(sizes, key=sizes.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(sizes[one] for one in share)).append(piece)
    return shares[number]


def findings_file(run: RunDirectory, piece: Piece) -> Path:
    """File of a piece's findings."""
    return run.checks / "pieces" / f"{piece.name}.json"


def state_of_files(run: RunDirectory) -> str:
    """The state of all files that the checks read; see `state_of`."""
    return state_of(run, _files(run))


def write_findings(run: RunDirectory, number: int, of: int) -> bool:
    """Check the pieces of a share, and write the findings of each; returns whether any were
    missing."""
    state, checked = state_of_files(run), checked_run(run)
    pieces = pieces_of_share(run, number, of)
    missing = [piece for piece in pieces if read_findings(run, piece, state) is None]
    for piece in missing:
        store_result(findings_file(run, piece), state, asdict(checked.check(piece)))
    return bool(missing)


def read_findings(run: RunDirectory, piece: Piece, state: str) -> Findings | None:
    """The findings for files in this state; None if they are missing or unusable."""
    found = cached_result(findings_file(run, piece), state)
    return None if found is None else _FINDINGS.validate_python(found)


def outcomes_of_pieces(run: RunDirectory, settings: TopdownSettings) -> list[Outcome]:
    """The outcomes of all checks; those without findings in this state are made here."""
    state, checked = state_of_files(run), checked_run(run)
    return checked.outcomes(
        [
            (piece, read_findings(run, piece, state) or checked.check(piece))
            for piece in checked.pieces(_n_pieces)
        ]
    )


def _n_pieces(path: Path) -> int:
    """Pieces for a file with a row for every block."""
    n_blocks = pq.read_metadata(path).num_rows
    return max(1, min(MOST_PIECES, -(-n_blocks // BLOCKS_PER_PIECE)))


def _files(run: RunDirectory) -> Iterator[Path]:
    """The public files that checks read."""
    yield from (path for path in (run.settings, run.root / "plan" / "plan.json") if path.exists())
    yield from (run.root / "spine").glob("*.*")
    for pattern in ("geounits.parquet", "blocks.parquet"):
        yield from (run.root / "spine").glob(f"*/{pattern}")
    for folder in (run.root / "estimates", run.root / "measurements", run.unchecked_release):
        yield from (path for path in folder.rglob("*") if path.is_file())
