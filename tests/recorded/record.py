"""The recorded digests of the runs, one file that people can read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

FILE = Path(__file__).with_name("digests.toml")
HEAD = """\
# SHA-256 of what small seeded runs write, by run and by folder or file: of rows in order, not of
# the bytes of files (tests/recorded/content.py). `make record` writes it anew; a change needs a
# line in CHANGELOG.md.

"""


def recorded() -> dict[str, dict[str, str]]:
    """The digests by run and place."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def record(digests: Mapping[str, Mapping[str, str]]) -> None:
    """Write the file anew."""
    tree = {name: dict(sorted(digests[name].items())) for name in sorted(digests)}
    FILE.write_text(HEAD + tomli_w.dumps(tree), encoding="utf-8")
