"""Results of one task of a large run, cached in a small file for a later one.

A file is used only while its inputs are unchanged; changed and missing results are computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.directory import RunDirectory, code_version
from ...runs.files import state_of_file, write_text


def state_of(run: RunDirectory, files: Iterable[Path]) -> str:
    """Digest that changes with the files of a run; see `state_of_file`."""
    digest = hashlib.sha256(code_version().encode())
    for path in sorted(files):
        digest.update(f"{path.relative_to(run.root)} {state_of_file(path)}\n".encode())
    return digest.hexdigest()


def keep(path: Path, state: str, found: Any) -> None:
    """Write the result for files in this state, in values that JSON has; arrays become lists."""
    facts = {"state": state, "found": found}
    write_text(path, json.dumps(facts, default=np.ndarray.tolist) + "\n")


def kept(path: Path, state: str) -> Any | None:
    """The result for files in this state; None if it is missing or unusable."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts["found"] if facts["state"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
