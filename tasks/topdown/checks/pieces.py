"""The checks of a run, in pieces that workers make side by side.

The result of a piece is cached in a small file with the state of every file that the checks read,
taken before the piece began. It is used only while its inputs are unchanged; changed and missing
results are computed again. All of it is public.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from ....validation.outcome import Outcome
from ....validation.topdown.run_checks import BELOW, PLAN, CheckedRun, Findings, Piece
from ...runs.directory import RunDirectory, code_version
from ...runs.files import state_of_file, write_text
from ..paths import geography_file, spine_folder
from ..settings import TopdownSettings


def state_of(run: RunDirectory, files: Iterable[Path]) -> str:
    """Digest that changes with the files of a run; see `state_of_file`."""
    digest = hashlib.sha256(code_version().encode())
    for path in sorted(files):
        digest.update(f"{path.relative_to(run.root)} {state_of_file(path)}\n".encode())
    return digest.hexdigest()


def store_result(path: Path, state: str, found: Any) -> None:
    """Write the result for files in this state, in values that JSON has; arrays become lists."""
    facts = {"state": state, "found": found}
    write_text(path, json.dumps(facts, default=np.ndarray.tolist) + "\n")


def cached_result(path: Path, state: str) -> Any | None:
    """The result for files in this state; None if it is missing or unusable."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts["found"] if facts["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


BLOCKS_PER_PIECE = 1 << 14
MOST_PIECES = 48
"""Pieces of one kind: each reads their common input, which takes seconds for a nation."""
LEAST_APART = 1 << 13
"""Blocks of the smallest piece that is worth a task of its own, which takes a tenth of a second;
true of a state's pieces, not of a county's."""

_FINDINGS = TypeAdapter(Findings)
"""Reads back the findings of a piece."""


def checked_run(run: RunDirectory) -> CheckedRun:
    """The files of a run that are checked."""
    return CheckedRun(run.root, run.unchecked_release)


def pieces_apart(run: RunDirectory) -> list[Piece]:
    """The pieces that are worth a task of their own, the largest first; empty for a small run."""
    sizes = {piece: _n_blocks(run, piece) for piece in checked_run(run).pieces(_n_pieces)}
    apart = [piece for piece, n_blocks in sizes.items() if n_blocks >= LEAST_APART]
    return sorted(apart, key=sizes.__getitem__, reverse=True)


def _n_blocks(run: RunDirectory, piece: Piece) -> float:
    """Blocks that a piece is about; none of the plan, and below the top of a spine that is not cut,
    which is all top."""
    if piece.kind == PLAN or (piece.kind == BELOW and piece.of == 1):
        return 0.0
    blocks = spine_folder(run, piece.subject) / "blocks.parquet"
    path = blocks if blocks.exists() else geography_file(run)
    return pq.read_metadata(path).num_rows / piece.of


def findings_file(run: RunDirectory, piece: Piece) -> Path:
    """File of a piece's findings."""
    return run.checks / "pieces" / f"{piece.name}.json"


def state_of_files(run: RunDirectory) -> str:
    """The state of all files that the checks read; see `state_of`."""
    return state_of(run, _files(run))


def write_findings(run: RunDirectory, piece: Piece) -> Path:
    """Check a piece and write its findings."""
    state = state_of_files(run)
    store_result(findings_file(run, piece), state, asdict(checked_run(run).check(piece)))
    return findings_file(run, piece)


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
