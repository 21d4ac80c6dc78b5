"""The methods that a comparison shows where its settings name none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runs.declared import read_declared

OFFERED: Mapping[str, Mapping[str, Any]] = read_declared(
    Path(__file__).parent / "presets" / "offered.toml"
)
"""Each in the range of parameters that offices use."""
