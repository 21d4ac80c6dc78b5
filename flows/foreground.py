"""Runs that a command starts or continues, and waits for."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from ..tasks.products.product import Product
from ..tasks.runs.settings import ProductSettings
from ..validation.expectations import import_great_expectations
from . import STARTED, running
from .console import print_closing, print_stages, print_summary
from .endings import explain_error
from .kernels import compile_in_background, load_kernels
from .registry import flow_of
from .running import is_done, prepare
from .servers import Server


def run_and_report(
    asked: Product, settings: ProductSettings, folder: str | Path, server: Server
) -> None:
    """Run the unfinished stages of settings in a folder, and print the end."""
    run = prepare(settings, folder)
    if run.read_manifest()["status"] != "complete":
        server.begin()
    if not is_done(asked, run, settings):
        is_compiling = compile_in_background(asked.name)
        # Imported and loaded while the server starts.
        flow_of(asked.name)
        import_great_expectations()
        load_kernels(asked.name)
        try:
            server.wait()
        except httpx.HTTPError as error:
            raise explain_error(error, str(run.root), settings.run) from None
        with print_stages(is_compiling):
            running.run_stages(asked, run, settings)
    print_summary(asked, run, settings)
    print_closing(run, settings, time.monotonic() - STARTED)
