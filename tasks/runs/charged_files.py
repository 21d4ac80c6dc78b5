"""The public files that decide what a run draws, and whether they are still as they were charged.

When a run is charged, the digests of its settings, its spine or tree, its plan and its parameters
are entered in the ledger, and kept in the run beside them (`charged.json`), so that every step can
compare what it reads without asking the ledger. Whatever draws, checks or reports also compares
with the ledger's own.

A run that goes on has all of these to hash again, and all noisy measurements, which of a nation are
17 GB. That begins in threads when the run is opened, while the server and the workers come up.

What one process of a command has hashed the others do not hash again: each writes it at the end of
a file of the command, and looks there before it hashes what it does not know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from .directory import RunDirectory
from .errors import InputRefused
from .files import FileState, sha256_of_file, state_of_file, write_record
from .names import below

CHARGED = "spine/charged.json"
"""File of a run that has the digests that it was charged with."""

_known: dict[Path, tuple[FileState, str]] = {}
"""Digests of files, and the states that they had. Threads add to it: whoever goes through it takes
a copy, which is made in one piece. A list of its items is not: it allocates, the collector may then
run finalizers, and these let other threads run."""
_shared: _Shared | None = None
"""What the processes of the command tell each other of them, if it has any."""
_ahead: list[Thread] = []
"""What hashes files whose digests will be asked for."""


def digests_by_name(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


def digest_of(path: Path) -> str:
    """SHA-256 of a public file; known while the file stands unchanged."""
    state = state_of_file(path)
    digest = _known_digest(path, state)
    if digest is None:
        digest = sha256_of_file(path)
        _know({path: (state, digest)})
    return digest


def _known_digest(path: Path, state: FileState) -> str | None:
    """The digest of a file in this state, as far as it is known."""
    if _known.get(path, ((), ""))[0] != state and _shared is not None:
        _known.update(_shared.news())
    before, digest = _known.get(path, ((), ""))
    return digest if before == state else None


def _know(digests: Mapping[Path, tuple[FileState, str]]) -> None:
    _known.update(digests)
    if _shared is not None:
        _shared.tell(digests)


def digests_of(paths: Iterable[Path]) -> list[str]:
    """The `digest_of` many public files; raises FileNotFoundError for one that is not there."""
    for thread in _ahead:
        thread.join()
    paths = list(paths)
    digests_if_there(paths)
    return list(map(digest_of, paths))


def _is_known(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return _known_digest(path, state_of_file(path)) is not None
    return False


def hash_ahead(run: RunDirectory) -> None:
    """Begin to hash what a charged run is held against, in threads that end with the process."""
    measured = sorted((run.root / "measurements").rglob("*.parquet"))
    paths = iter([*(_path_of(run, name) for name in _charged(run)), *measured])

    def work() -> None:
        for path in paths:
            with suppress(OSError):
                digest_of(path)

    threads = [Thread(target=work, daemon=True) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    _ahead[:] = threads  # Begun, so that whoever else is about to wait for them can.


def shared_digests() -> Path | None:
    """Where the processes that this one begins tell it and each other what they hash, by
    `share_digests`; None where there is no file that ends with this process."""
    if _shared is None and hasattr(os, "memfd_create"):
        share_digests(Path(f"/proc/{os.getpid()}/fd/{os.memfd_create('digests')}"))
    return None if _shared is None else _shared.file


def share_digests(file: Path) -> None:
    """Tell the command's other processes what this one has hashed and hashes from now on, and take
    their word."""
    global _shared
    _shared = _Shared(file)
    _shared.tell(_known.copy())


def know_renamed(before: Path, after: Path) -> None:
    """Know the files in a folder that has been renamed: they stand as they were, but for where."""
    _know(
        {
            after / path.relative_to(before): known
            for path, known in _known.copy().items()
            if path.is_relative_to(before)
        }
    )


@dataclass
class _Shared:
    """A file of digests, to which every process of a command adds at the end.

    It is in memory, and is opened by what the system calls it of the process that has made it.

    n_read : bytes of it that this process has read.
    """

    file: Path
    n_read: int = 0

    def tell(self, digests: Mapping[Path, tuple[FileState, str]]) -> None:
        lines = [
            json.dumps([str(path), state, digest]) for path, (state, digest) in digests.items()
        ]
        with suppress(OSError):
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND)
            try:
                # One write, so that the lines of several processes do not mix.
                os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
            finally:
                os.close(descriptor)

    def news(self) -> dict[Path, tuple[FileState, str]]:
        """What others, and this one, have told since; nothing once the file is gone."""
        with suppress(OSError), self.file.open("rb") as stream:
            start = stream.seek(self.n_read)
            lines = stream.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            self.n_read = start + len(whole)  # Of threads that read the same, none goes on twice.
            told = map(json.loads, whole.splitlines())
            return {Path(path): (tuple(state), digest) for path, state, digest in told}
        return {}


def digests_if_there(paths: Sequence[Path]) -> list[str | None]:
    """SHA-256 of public files, as many at a time as there are processors; None of what there is
    not."""
    if sum(not _is_known(path) for path in paths) < 2:
        return list(map(_digest_if_there, paths))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_digest_if_there, paths))


def _digest_if_there(path: Path) -> str | None:
    try:
        return digest_of(path)
    except FileNotFoundError:
        return None


def write_charged(run: RunDirectory, charged_files: Mapping[str, str]) -> None:
    """Keep in the run what its draws were charged with."""
    write_record(_charged_file(run), dict(charged_files))


def refuse_altered(run: RunDirectory, charged_files: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws is not the one that was charged.

    `charged_files` are those of the ledger, by default those kept in the run; a run that has not
    been charged has none.
    """
    charged = _charged(run) if charged_files is None else charged_files
    paths = [_path_of(run, name) for name in charged]
    found = digests_if_there(paths)
    for path, digest, wanted in zip(paths, found, charged.values(), strict=True):
        if digest is None:
            raise InputRefused(
                f"{path} is missing, and the run was charged with it; put it back, or start a "
                "new run."
            )
        if digest != wanted:
            raise InputRefused(
                f"{path} has been edited since the run was charged; put it back, or start a "
                "new run."
            )


def is_left_out(spines: Path, name: str) -> bool:
    """Whether a run was charged without a file `name` of the folder that has its spines.

    What was charged decides what is drawn; a file that came later decides nothing.
    """
    charged = _charged(RunDirectory(spines.parent))
    return bool(charged) and f"{spines.name}/{name}" not in charged


def _path_of(run: RunDirectory, name: str) -> Path:
    """The path of a file of a run, as `digests_by_name` names it; raises ValueError for another."""
    return below(run.root, *name.split("/"))


def _charged(run: RunDirectory) -> dict[str, str]:
    try:
        charged = json.loads(_charged_file(run).read_text(encoding="utf-8"))
        for name in charged:
            _path_of(run, name)
        return charged
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        raise InputRefused(
            f"{_charged_file(run)} cannot be read; remove it and resume the run, which makes it "
            "again from the ledger."
        ) from None


def _charged_file(run: RunDirectory) -> Path:
    return run.root / CHARGED
