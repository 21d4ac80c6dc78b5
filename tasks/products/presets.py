"""The presets that settings files may name."""

from __future__ import annotations

from pathlib import Path

PRESETS = Path(__file__).parents[2] / "flows" / "settings"
"""Their folder."""
