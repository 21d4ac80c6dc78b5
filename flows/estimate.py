"""The estimate flow: from noisy measurements that are published already to microdata and tables.

    geography -> geounits -> invariants -> constraints, measurements -> estimate, by geolevel
              -> microdata, tables and margins side by side -> checks -> release -> report

The universes go side by side. Nothing confidential is read, and nothing is charged.
"""

from __future__ import annotations

from itertools import chain

from ..tasks.runs.directory import RunDirectory
from ..tasks.topdown.product import ESTIMATE
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.spine.files import shards_by_geolevel
from ..tasks.topdown.steps import (
    constrain,
    read_geography_file,
    read_geounits,
    read_invariants,
    read_measurements,
)
from .running import flow_of_product
from .stages import Future, finish, stage
from .topdown import TopdownStages


def stages(run: RunDirectory, settings: TopdownSettings) -> None:
    """Submit the stages of a run."""
    own, universes = TopdownStages(run, settings), settings.run.universes
    root = own.root
    with stage("geography"):
        geography = read_geography_file.submit(root)
    spines: dict[str, Future] = {}
    for universe in universes:
        with stage("geounits", f"{universe} geounits"):
            spines[universe] = read_geounits.submit(root, universe, wait_for=[geography])
    with stage("invariants"):
        invariants = read_invariants.submit(root, wait_for=spines.values())
    finish()  # The spines have the shards.
    constrained: dict[str, Future] = {}
    measured: dict[tuple[str, str], list[Future]] = {}
    for universe in universes:
        with stage("constraints", f"{universe} constraints"):
            constrained[universe] = constrain.submit(root, universe, wait_for=[invariants])
    for universe in universes:
        for geolevel in shards_by_geolevel(run, universe):
            with stage("measurements", f"{universe} measurements {geolevel}"):
                measured[universe, geolevel] = [
                    read_measurements.submit(root, universe, geolevel, wait_for=[invariants])
                ]
    finish()
    described = own.describe_spines(spines)
    margins = own.begin_margins(chain(*measured.values()))
    estimated = own.estimate_universes(universes, measured, constrained)
    written = own.write_release(estimated, margins)
    finish([*written, *margins])
    own.check_and_release(written, described)


estimate = flow_of_product(
    ESTIMATE,
    stages,
    "Releases microdata and redistricting tables from published noisy measurements alone. It "
    "reads nothing confidential and spends nothing.",
)
