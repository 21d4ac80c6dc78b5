"""The methods that a comparison shows where its settings name none."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OFFERED: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "presets" / "offered.toml").read_text(encoding="utf-8")
)
"""Each in the range of parameters that offices use."""
