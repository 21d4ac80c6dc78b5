"""The list of this machine's ledgers, so that people whom one knows are not new to another.

The list is a file of mode 0600, a path on every line: `ledgers` in `$XDG_STATE_HOME/spineflow`, by
default `~/.local/state/spineflow`, or the file that the environment names as `SPINEFLOW_LEDGERS`.
Where that is set to nothing, no list is kept, as in tests. A ledger enters it when it is made by
the command, and before confidential input is charged to it. A run on confidential input asks all
others of the list for its people (`identity`), and holds the lock of the list until it is charged,
so that of two runs under two ledgers one finds the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..runs.errors import BudgetRefused
from ..runs.files import locked, replacing

LIST_VARIABLE = "SPINEFLOW_LEDGERS"
"""Of the environment: the file with the list of ledgers; nothing for none."""


def list_file() -> Path | None:
    """The file with this machine's ledgers; None where no list is kept."""
    named = os.environ.get(LIST_VARIABLE)
    if named is not None:
        return Path(named).absolute() if named else None
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if state.startswith("~"):
        raise BudgetRefused(
            "this user has no home, where the list of this machine's ledgers would be; name a file "
            f"for it with {LIST_VARIABLE}"
        )
    return Path(state) / "spineflow" / "ledgers"


def listed_ledgers() -> list[Path]:
    """The paths in the list, in the order in which they were entered.

    Raises BudgetRefused for a list that others can write or take away, or that cannot be read.
    """
    file = list_file()
    if file is None:
        return []
    try:
        places = [place.stat() for place in (file.parent, file) if place.exists()]
        lines = file.read_text(encoding="utf-8").splitlines() if len(places) == 2 else []
    except (OSError, ValueError) as error:
        raise BudgetRefused(
            f"the list of this machine's ledgers {file} cannot be read; correct it, or name "
            f"another with {LIST_VARIABLE}"
        ) from error
    if any(place.st_uid != os.geteuid() or place.st_mode & 0o022 for place in places):
        raise BudgetRefused(
            f"the list of this machine's ledgers {file}, or its folder, can be written by another "
            "user; see that both are yours, and chmod the list to 0600 and the folder to 0700"
        )
    return [Path(line) for line in lines if line]


def list_ledger(path: Path) -> None:
    """Enter a ledger in the list, unless it is there."""
    _change(lambda paths: paths if path in paths else [*paths, path])


def forget_ledger(path: Path) -> None:
    """Take a ledger off the list."""
    _change(lambda paths: [one for one in paths if one != path])


@contextmanager
def list_held() -> Iterator[None]:
    """Hold the lock of the list, if one is kept.

    Raises BudgetRefused where its folder cannot be made or written.
    """
    file = list_file()
    if file is None:
        yield
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _cannot_be_written(file, error) from error
    with locked(descriptor):
        yield


def _change(change: Callable[[list[Path]], list[Path]]) -> None:
    """Replace the list by what `change` makes of it."""
    with list_held():
        file, before = list_file(), listed_ledgers()
        after = change(before)
        if file is None or after == before:
            return
        try:
            with replacing(file) as part:
                part.touch(mode=0o600)
                part.write_text("".join(f"{path}\n" for path in after), encoding="utf-8")
        except OSError as error:
            raise _cannot_be_written(file, error) from error


def _cannot_be_written(file: Path, error: OSError) -> BudgetRefused:
    return BudgetRefused(
        f"the list of this machine's ledgers {file} cannot be written ({error.strerror}); make its "
        f"folder writable, or name another file with {LIST_VARIABLE}"
    )
