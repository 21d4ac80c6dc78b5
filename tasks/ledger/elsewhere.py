"""People whom another ledger of this machine knows: their digests under its keys, and refusals.

The digests are made when the input is read, for the keys of every ledger in the list (`listed`),
and for those of ledgers that were joined to the run's own. Before the run is charged its ledger and
all others are asked. No other is asked for input that is not confidential, as what was generated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from ..runs.directory import RunDirectory
from ..runs.errors import BudgetRefused
from ..runs.files import read_record, write_text
from ..runs.settings import ProductSettings
from .charges import datasets_of
from .digests import InputDigest, digest_of_table
from .key import read_key
from .listed import listed_ledgers
from .store import Ledger, has_joined, ledger_at, open_ledger, reading

DIGESTS_ELSEWHERE = "input_digests_elsewhere.json"
"""Digests of a run's people under other keys than its ledger's, in its confidential folder."""

Digests = Mapping[str, InputDigest]
"""Digests of people by kind."""


def store_elsewhere(
    run: RunDirectory,
    settings: ProductSettings,
    ledger: Ledger,
    digests_under: Callable[[bytes], Digests],
) -> None:
    """Store the digests of a run's people under all keys but its ledger's own."""
    own, *joined = ledger.keys().items()
    keys = dict(joined)
    for _, other in _others(ledger, settings):
        keys |= other.keys() if other is not None else {}
    keys.pop(own[0], None)
    stored = {
        fingerprint: {kind: asdict(digest) for kind, digest in digests_under(key).items()}
        for fingerprint, key in keys.items()
    }
    content = json.dumps({"key": own[0], "elsewhere": stored})
    write_text(run.confidential / DIGESTS_ELSEWHERE, content)


def digests_by_key(run: RunDirectory, ledger: Ledger, own: Digests) -> dict[str, Digests]:
    """The digests of a run's people by fingerprints of keys; `own` are those that it is charged
    with.
    """
    try:
        stored = read_record(run.confidential / DIGESTS_ELSEWHERE)
    except FileNotFoundError:
        # Versions that knew of no other ledger stored none.
        return {read_key(ledger.key_path).fingerprint: own}
    found = {
        fingerprint: {kind: digest_of_table(digest) for kind, digest in digests.items()}
        for fingerprint, digests in stored["elsewhere"].items()
    }
    return {stored["key"]: own} | found


def refuse_known_elsewhere(
    run: RunDirectory, settings: ProductSettings, ledger: Ledger, own: Digests
) -> list[InputDigest]:
    """The digests of a run's people under all keys of its ledger, if no other ledger knows them.

    The caller holds the list until the run is charged. Raises BudgetRefused for people whom another
    ledger knows, for a ledger that was joined to another and put back, and where it cannot be told
    since a ledger was made or joined after the input was read.
    """
    digests = digests_by_key(run, ledger, own)
    for path, other in _others(ledger, settings):
        if other is None:
            continue  # It is told of by `unasked_ledgers`.
        if has_joined(other, read_key(ledger.key_path).fingerprint):
            raise BudgetRefused(
                f"the ledger {ledger.path} was joined to {path}, and is an older copy; set "
                "[privacy] ledger to that one"
            )
        with reading(other) as connection:
            is_empty = not connection.execute("SELECT 1 FROM inputs LIMIT 1").fetchone()
            asked = [] if is_empty else _under_keys_of(other, digests)
            known = sorted(datasets_of(connection, asked))
        if known:
            raise BudgetRefused(
                f"the input of dataset {settings.privacy.dataset!r} holds people that another "
                f"ledger of this machine, {path}, knows as dataset {known[0]!r}; set [privacy] "
                f"ledger to that one, or join it with 'spineflow ledger join {path} --ledger "
                f"{ledger.path}'"
            )
    return _under_keys_of(ledger, digests)


def unasked_ledgers(settings: ProductSettings) -> list[str]:
    """What is to be said of ledgers in the list that cannot be asked for the people of a run."""
    return [
        f"the ledger {path} of this machine's list is missing or cannot be used, so that people "
        "whom it knows are not recognised; restore it, or take it off the list with 'spineflow "
        f"ledger forget {path}'"
        for path, other in _others(ledger_at(Path(settings.privacy.ledger)), settings)
        if other is None
    ]


def _under_keys_of(ledger: Ledger, digests: Mapping[str, Digests]) -> list[InputDigest]:
    """The digests under the keys of a ledger; raises BudgetRefused if there are none of some."""
    found: list[InputDigest] = []
    keys = ledger.keys()
    if keys.keys() - digests.keys():
        raise BudgetRefused(
            f"the ledger {ledger.path} was made, joined or entered in this machine's list since "
            "this run has read its input, so that it cannot be asked for its people; start a new "
            "run"
        )
    for fingerprint in keys:
        found += digests[fingerprint].values()
    return found


def _others(ledger: Ledger, settings: ProductSettings) -> Iterator[tuple[Path, Ledger | None]]:
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
