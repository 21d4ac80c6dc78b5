"""What files of the package declare, beside the code that reads them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_declared(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
