"""The examples of docstrings are run, and show what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = {
    "library": "spineflow",
    **{name: f"spineflow.{name}" for name in ("flows", "tasks", "geography", "validation")},
}


def modules_with_examples() -> list[str]:
    found = []
    for folder, package in FOLDERS.items():
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if "\n    >>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
                found.append(".".join([package, *(part for part in parts if part != "__init__")]))
    return found


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_show_what_they_say(module: str) -> None:
    outcome = doctest.testmod(import_module(module))
    assert outcome.attempted and not outcome.failed
