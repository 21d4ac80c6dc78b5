"""Runs that a command starts or continues, and waits for."""

from __future__ import annotations

import gc
import time
from functools import partial
from pathlib import Path

import httpx

from ..tasks.products.product import Product
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from ..validation.expectations import import_great_expectations
from . import STARTED, running
from .console import print_closing, print_summary, shown_progress
from .endings import explained
from .kernels import compile_beside, load_kernels
from .registry import stages_of
from .runners import begin_forking
from .running import is_done, prepare
from .servers import Server


def run_and_report(
    asked: Product, settings: ProductSettings, folder: str | Path, server: Server
) -> None:
    """Run settings in a folder as far as it is not done, and print the end."""
    run = RunDirectory(Path(folder).resolve())
    gc.freeze()  # Or the collector would copy every page that is shared with workers.
    gc.enable()
    # Now, while this process has no threads. Of a run that is done it costs a moment.
    has_workers = begin_forking(settings.run, partial(make_ready, asked.name))
    run = prepare(settings, folder)
    if run.read_manifest()["status"] != "complete":
        server.begin()
    if not is_done(asked, run, settings):
        is_compiling = compile_beside(asked.name)
        if not run.read_manifest()["stages"] and not has_workers:
            # The first stage needs it, and it takes no longer than the server to come up.
            import_great_expectations()
        stages_of(asked.name)  # To import the flow takes no longer than the server either.
        try:
            server.wait()
        except httpx.HTTPError as error:
            raise explained(error, str(run.root), settings.run) from None
        with shown_progress(is_compiling):
            running.run_stages(asked, run, settings)
    print_summary(asked, run, settings)
    print_closing(run, settings, time.monotonic() - STARTED)


def make_ready(product: str) -> None:
    """Import and load in this process, which workers are forked from, what they need first."""
    stages_of(product)
    load_kernels(product)
