"""Recognition of an input's people under every ledger of this machine, and of changed input files.

The list is a file of mode 0600, a path on every line: `ledgers` in `$XDG_STATE_HOME/spineflow`, by
default `~/.local/state/spineflow`, or the file that the environment names as `SPINEFLOW_LEDGERS`.
If that is empty, no list is kept, as in tests. A ledger enters it when it is made by
the command, and before confidential input is charged to it. A run on confidential input looks its
people up in all other ledgers of the list, and locks the list until it is charged,
so that of two runs under two ledgers one finds the other.

When the input is read, digests are made for the keys of every ledger in the list, and of ledgers
joined to the run's own. Before the run is charged, its ledger and all others are asked. Input that
is not confidential, such as generated input, is looked up in no other ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.directory import RunDirectory
from ..runs.errors import BudgetRefused, InputRefused
from ..runs.files import locked, read_record, read_values, replacing, write_text
from ..runs.handles import Made
from ..runs.settings import ProductSettings
from ..tables.sources import input_files
from .charges import datasets_of
from .recognition import INPUT_DIGESTS, InputDigest
from .store import Ledger, has_joined, ledger_at, open_ledger, read_key, reading, value_of

LIST_VARIABLE = "SPINEFLOW_LEDGERS"
"""Environment variable with the file of the list of ledgers; empty for no list."""


def list_file() -> Path | None:
    """The file with this machine's ledgers; None without a list."""
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


def list_ledger(path: Path, *, is_listed: bool = True) -> None:
    """Enter a ledger in the list, unless the list has it, or take it off."""
    with lock_list():
        file, listed = list_file(), listed_ledgers()
        if file is None or (path in listed) == is_listed:
            return
        listed = [*listed, path] if is_listed else [one for one in listed if one != path]
        with _writable(file), replacing(file) as part:
            part.touch(mode=0o600)
            part.write_text("".join(f"{one}\n" for one in listed), encoding="utf-8")


@contextmanager
def lock_list() -> Iterator[None]:
    """Lock the list, if one is kept.

    Raises BudgetRefused where its folder cannot be made or written.
    """
    file = list_file()
    if file is None:
        yield
        return
    with _writable(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    with locked(descriptor):
        yield


@contextmanager
def _writable(file: Path) -> Iterator[None]:
    """Raise BudgetRefused where the block cannot write the list."""
    try:
        yield
    except OSError as error:
        raise BudgetRefused(
            f"the list of this machine's ledgers {file} cannot be written ({error.strerror}); make "
            f"its folder writable, or name another file with {LIST_VARIABLE}"
        ) from error


INPUT_FILES = "input_files.json"
"""Sizes and times of the input files, in the run's confidential folder."""


DIGESTS_ELSEWHERE = "input_digests_elsewhere.json"
"""Digests of a run's people under other keys than its ledger's, in its confidential folder."""

Digests = Mapping[str, InputDigest]
"""Digests of people by kind."""


@dataclass(frozen=True)
class _Elsewhere:
    """Digests of a run's people by fingerprints of other keys than its ledger's, which is `key`."""

    key: str
    elsewhere: Mapping[str, Digests]


def store_identity(
    run: RunDirectory,
    settings: ProductSettings,
    digests_under: Callable[[bytes], Digests],
) -> None:
    """Record an input that was read: its files, and, if the run is private, its people.

    `digests_under` computes the digests by kind under a key: the ledger's, and the keys of
    other ledgers. All are kept in the run's confidential folder.
    """
    if settings.is_private:
        found = {name: dict(digests_under(key)) for name, key in keys_of(settings).items()}
        own = read_key(open_ledger(Path(settings.privacy.ledger)).key_path).fingerprint
        digests = {kind: asdict(digest) for kind, digest in found.pop(own).items()}
        elsewhere = json.dumps(asdict(_Elsewhere(own, found)))
        write_text(run.confidential / DIGESTS_ELSEWHERE, elsewhere)
        write_text(run.confidential / INPUT_DIGESTS, json.dumps(digests))
    write_text(run.confidential / INPUT_FILES, json.dumps(local_files(settings)))


def keys_of(settings: ProductSettings) -> dict[str, bytes]:
    """By fingerprint, the keys under which the people of a private run are recognised: the ledger's
    and those of other ledgers."""
    ledger = open_ledger(Path(settings.privacy.ledger))
    keys = ledger.keys()
    for _, other in _other_ledgers(ledger, settings):
        keys |= other.keys() if other is not None else {}
    return keys


def stored_digests(run: RunDirectory) -> dict[str, InputDigest]:
    """The keyed digests that the ingest of this run stored; empty if it stored none."""
    file = run.confidential / INPUT_DIGESTS
    return read_values(file, dict[str, InputDigest]) if file.exists() else {}


def digests_to_charge(run: RunDirectory, settings: ProductSettings) -> dict[str, InputDigest]:
    """The keyed digests of the people that a run is charged for.

    Raises InputRefused for a private run whose ingest has stored none, or others than the
    manifest's: without them the ledger would not know whose data it charges.
    """
    stored = stored_digests(run)
    recorded = run.read_manifest()["input_digests"]
    differs = any(
        recorded.get(kind, digest.whole) != digest.whole for kind, digest in stored.items()
    )
    if settings.is_private and (differs or not stored):
        raise InputRefused(
            f"{run.confidential / INPUT_DIGESTS} is {'altered' if stored else 'missing'}, and "
            "without it the ledger cannot know whose data these are; put it back, or start a new "
            "run."
        )
    return stored


def whole_digests(run: RunDirectory) -> dict[str, str]:
    """The digest of each whole table, by kind, which the manifest keeps."""
    return {kind: digest.whole for kind, digest in stored_digests(run).items()}


def refuse_changed_input(run: RunDirectory, settings: ProductSettings) -> None:
    """Raise InputRefused if the input's files have changed since the run read them.

    Files are compared by size and time of modification; inputs that are gone, and those on object
    stores, cannot be compared and count as unchanged. A file that was not there is a change.
    """
    file = run.confidential / INPUT_FILES
    if not file.exists():
        return
    known = read_record(file, "remove it and resume the run, if its input is the one that it read")
    now = local_files(settings)
    changed = [path for path, seen in known.items() if now.get(path, seen) != seen]
    new = sorted(now.keys() - known.keys()) if known else []
    for path in (*changed, *new):
        how, remedy = (
            ("is new among the files of the input", "take it out")
            if path in new
            else ("has changed", "put the old file back")
        )
        raise InputRefused(
            f"{Path(path).name} {how} since this run read it, by {file.relative_to(run.root)}; "
            f"{remedy}, or start a new run with another --run-dir."
        )


def ingested_once(
    run: RunDirectory,
    settings: ProductSettings,
    path: Path,
    ingest: Callable[[RunDirectory, Any], object],
) -> Made:
    """The result of an ingest whose last file is `path`, or the existing one; raises as `ingest`,
    and for an existing one as `refuse_changed_input`."""
    is_there = path.exists()
    if is_there:
        refuse_changed_input(run, settings)
    else:
        ingest(run, settings)
    return Made(path, is_there, whole_digests(run))


def local_files(settings: ProductSettings) -> dict[str, list[int]]:
    """Size and time of modification of the input's local files, those in its folders included."""
    found = {}
    for name in settings.input.files():
        path = Path(name)
        files = [Path(file.path) for file in input_files("input", name)]
        for file in sorted(path.rglob("*")) if path.is_dir() else files:
            if file.is_file():
                status = file.stat()
                found[str(file)] = [status.st_size, status.st_mtime_ns]
    return found


def refuse_known_elsewhere(
    run: RunDirectory, settings: ProductSettings, ledger: Ledger, own: Digests
) -> list[InputDigest]:
    """The digests of a run's people under all keys of its ledger, unless another ledger knows them.

    The caller keeps the list locked until the run is charged. Raises BudgetRefused for people known
    to another ledger, for a ledger that was joined to another and put back, and if a ledger was
    made or joined after the input was read, so that this cannot be determined.
    """
    file, fingerprint = run.confidential / DIGESTS_ELSEWHERE, read_key(ledger.key_path).fingerprint
    stored = read_values(file, _Elsewhere) if file.exists() else _Elsewhere(fingerprint, {})
    digests = {stored.key: own, **stored.elsewhere}
    for path, other in _other_ledgers(ledger, settings):
        if other is None:
            continue  # `unasked_ledgers` reports it.
        if has_joined(other, fingerprint):
            raise BudgetRefused(
                f"the ledger {ledger.path} was joined to {path}, and is an older copy; set "
                "[privacy] ledger to that one"
            )
        with reading(other) as connection:
            is_empty = value_of(connection, "SELECT 1 FROM inputs LIMIT 1") is None
            asked = [] if is_empty else _digests_by_ledger_keys(other, digests)
            known = sorted(datasets_of(connection, asked))
        if known:
            raise BudgetRefused(
                f"the input of dataset {settings.privacy.dataset!r} holds people that another "
                f"ledger of this machine, {path}, knows as dataset {known[0]!r}; set [privacy] "
                f"ledger to that one, or join it with 'spineflow ledger join {path} --ledger "
                f"{ledger.path}'"
            )
    return _digests_by_ledger_keys(ledger, digests)


def unasked_ledgers(settings: ProductSettings) -> list[str]:
    """Warnings of ledgers in the list that cannot be asked for the people of a run."""
    return [
        f"the ledger {path} of this machine's list is missing or cannot be used, so that people "
        "whom it knows are not recognised; restore it, or take it off the list with 'spineflow "
        f"ledger forget {path}'"
        for path, other in _other_ledgers(ledger_at(Path(settings.privacy.ledger)), settings)
        if other is None
    ]


def _digests_by_ledger_keys(ledger: Ledger, digests: Mapping[str, Digests]) -> list[InputDigest]:
    """The digests under the keys of a ledger; raises BudgetRefused if any key lacks digests."""
    keys = ledger.keys()
    if keys.keys() - digests.keys():
        raise BudgetRefused(
            f"the ledger {ledger.path} was made, joined or entered in this machine's list since "
            "this run has read its input, so that it cannot be asked for its people; start a new "
            "run"
        )
    return [digest for fingerprint in keys for digest in digests[fingerprint].values()]


def _other_ledgers(
    ledger: Ledger, settings: ProductSettings
) -> Iterator[tuple[Path, Ledger | None]]:
    """The other ledgers in the list, None for those that cannot be used."""
    if not settings.is_private or not settings.input.confidential:
        return
    seen = {ledger.path}
    for path in listed_ledgers():
        try:
            other = open_ledger(path, must_exist=True)
            other.keys()
        except BudgetRefused:
            if path not in seen:
                yield path, None
            continue
        if other.path not in seen:
            seen.add(other.path)
            yield path, other
