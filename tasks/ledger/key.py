"""The key beside a ledger: what digests are made under, and the mark of the ledger's last state.

The key file, mode 0600, is one line: the key, and once the ledger has been written to, the word
`used`, the number of the last state that was acted upon, and that state's identity:

    <64 hexadecimal digits> used 12 5b0c...

The keys of ledgers that were joined to it follow, since their digests cannot be made anew:

    joined <64 hexadecimal digits>

A ledger whose state lies behind the mark, or in another history, is an older or another copy
(`store` compares). Files of version 0.1.0 have no number; they count as state 0.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..runs.errors import BudgetRefused
from ..runs.files import TEMPORARY_SUFFIX, replacing

KEY_BYTES = 32
USED, JOINED = "used", "joined "
"""Words in the key file: of a ledger that may hold charges, and before the key of another."""


@dataclass(frozen=True)
class Mark:
    """A state of a ledger: how many transactions have changed it, and the identity of the last."""

    sequence: int = 0
    state: str = ""


@dataclass(frozen=True)
class LedgerKey:
    """A ledger's key, whether its ledger may hold charges, and the last state acted upon; and the
    keys of ledgers that were joined to it.
    """

    key: bytes
    is_used: bool
    mark: Mark
    joined: tuple[bytes, ...] = ()

    @property
    def fingerprint(self) -> str:
        """What a ledger holds of its key, by which the two are known to belong together."""
        return fingerprint_of(self.key)


def fingerprint_of(key: bytes) -> str:
    """What tells a key without giving it away."""
    return hmac.new(key, b"ledger key fingerprint", hashlib.sha256).hexdigest()


def read_key(path: Path) -> LedgerKey:
    """Read a key file; raises BudgetRefused if it is missing, damaged, or open to others."""
    try:
        status = path.stat()
        first, *further = path.read_text(encoding="ascii").splitlines() or [""]
        words = first.split()
        key, used, number, state = [*words, *["", "", "0", ""][len(words) :]]
        joined = tuple(bytes.fromhex(line.removeprefix(JOINED)) for line in further)
        found = LedgerKey(bytes.fromhex(key), used == USED, Mark(int(number), state), joined)
    except (OSError, ValueError) as error:
        raise BudgetRefused(
            f"the ledger's key {path} cannot be read; restore it from a backup"
        ) from error
    if status.st_mode & 0o077:
        raise BudgetRefused(f"the ledger's key {path} is open to other users; chmod it to 0600")
    if status.st_uid != os.geteuid():
        raise BudgetRefused(
            f"the ledger's key {path} belongs to another user; run as its owner, or chown it"
        )
    if any(len(key) != KEY_BYTES for key in (found.key, *found.joined)):
        raise BudgetRefused(f"the ledger's key {path} is damaged; restore it from a backup")
    return found


def make_key(path: Path) -> None:
    """Write a new key, unless one is there; the folder must be locked."""
    if not path.exists():
        _write(path, secrets.token_hex(KEY_BYTES))


def write_mark(path: Path, mark: Mark) -> None:
    """Set the mark, durably; the caller holds the ledger's write lock."""
    found = read_key(path)
    _write_key(path, LedgerKey(found.key, True, mark, found.joined))


def add_keys(path: Path, keys: Iterable[bytes]) -> None:
    """Keep the keys of ledgers that are joined to this one, durably; as `write_mark`."""
    found = read_key(path)
    joined = tuple(dict.fromkeys([*found.joined, *keys]))
    _write_key(path, LedgerKey(found.key, True, found.mark, joined))


def _write_key(path: Path, key: LedgerKey) -> None:
    joined = [f"{JOINED}{each.hex()}" for each in key.joined]
    first = f"{key.key.hex()} {USED} {key.mark.sequence} {key.mark.state}"
    _write(path, "\n".join([first, *joined]))


def _write(path: Path, text: str) -> None:
    """Replace a key file in one step, and remove what killed writers left; one writes at a time."""
    for leftover in path.parent.glob(f"{path.name}.*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)
    with replacing(path) as part:
        part.touch(mode=0o600)
        part.write_text(text + "\n", encoding="ascii")
