"""Importing this makes a process ready to run: the smallest run has been through all stages.

The process that commands are forked from imports it. Kernels are then loaded, pages' templates and
the words of rules are there, and so are the modules that are imported where they are needed.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from spineflow.flows.demo import DEMOS
from spineflow.flows.running import prepare, run_stages_here
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT


def warm() -> None:
    """Run a county, whatever it releases."""
    with tempfile.TemporaryDirectory(prefix="spineflow-warm-") as name:
        folder = Path(name)
        generate_county(folder / "input", persons=FEWEST_PERSONS, seed=1)
        (folder / "settings.toml").write_text(
            (DEMOS / "topdown.toml").read_text() + "[release]\nmargins = false\ntables = false\n"
        )
        settings = PRODUCT.load(folder / "settings.toml")
        run_stages_here(PRODUCT, prepare(settings, folder / "run"), settings)


with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
    warm()
