"""The map of docs/design.md, made from the docstrings of the packages: `make map` rewrites it.

Every folder of sources is listed with the first paragraph of its package's docstring, and below it
every module with the first paragraph of its own. What the map says is thus said once, in the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design.md"
FOLDERS = ("library", "flows", "tasks", "geography", "validation")
START, END = "<!-- Made by `make map`. -->", "<!-- End of the map. -->"


def summary(module: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def map_lines() -> Iterator[str]:
    """A line for every folder of sources, and one indented under it for every module."""
    for folder in FOLDERS:
        for package in sorted((ROOT / folder).rglob("__init__.py")):
            place = package.parent.relative_to(ROOT).as_posix()
            yield f"- **`{place}/`** {summary(package)}"
            for module in sorted(package.parent.glob("*.py")):
                if module != package:
                    yield f"  - `{module.stem}`: {summary(module)}"


def with_map(page: str) -> str:
    """The page with its map made anew. Raises ValueError if the marks of its place are missing."""
    if page.count(START) != 1 or page.count(END) != 1:
        raise ValueError(f"docs/design.md must hold {START} and {END} once each")
    before, _, rest = page.partition(START)
    after = rest.partition(END)[2]
    return before + "\n".join([START, "", *map_lines(), "", END]) + after


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
