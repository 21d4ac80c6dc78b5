"""What the benchmarks import is there: they run by hand, so a moved name would not be noticed."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "mutants")
"""All but the one that asks the tests of a clone."""


def names_of_ours(file: Path) -> set[tuple[str, str]]:
    """Module and name of everything a file imports from this project, at any depth."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in ("spineflow", "benchmarks", "tests")
        for alias in node.names
    }


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_is_there(file: Path) -> None:
    imported, text = names_of_ours(file), file.read_text(encoding="utf-8")
    # A benchmark without imports of ours runs the command.
    assert imported or "__main__" not in text or "spineflow.flows.cli" in text
    for module, name in sorted(imported):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
