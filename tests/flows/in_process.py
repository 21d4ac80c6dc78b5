"""Commands without a Prefect server: the same steps in the same order, called as functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import running
from spineflow.flows.order import announced, run_in_process
from spineflow.flows.running import Product, entered
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings import ProductSettings


@contextmanager
def stages_in_process() -> Iterator[None]:
    """Have commands run the stages of a product in this process, without a flow run.

    The server of the session, if other tests have set one, is not theirs.
    """

    def run_stages(product: Product, run: RunDirectory, settings: ProductSettings) -> str:
        with entered(str(run.root), type(settings)) as (opened, own):
            run_in_process(opened, announced(opened, own, product.order(opened, own)))
        return str(run.release)

    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(running, "run_stages", run_stages)
        # `entered` submits the copying of a release to a flow that is not there.
        patched.setattr(running.copy_checked_release, "submit", running.copy_checked_release.fn)
        patched.setattr(running, "finish", lambda *_: None)
        yield
