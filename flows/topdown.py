"""The TopDown flow: from census-like tables to privacy-protected microdata.

    ingest -> spine -> ledger -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata, tables and margins side by side -> checks, accuracy -> release -> report

With measurement on demand, a geolevel is measured after the geolevel above it has been estimated.
The estimator `full_information` combines measurements from the blocks up before it estimates.
Background tasks run in parallel with the estimation: they predict the errors of a large run,
compute the best linear unbiased estimates for margins, and write the margins of tables. The spine
is summarised for the report during the release.

Universes run in parallel. Tasks exchange all data through the run directory, and pass each other
names and digests only.
"""

from __future__ import annotations

from itertools import chain

from ..tasks.runs.directory import RunDirectory
from ..tasks.topdown.ingest.steps import (
    check_records,
    count_records,
    ingest,
    n_shares,
    read_referred,
    recognise_people,
)
from ..tasks.topdown.product import TOPDOWN
from ..tasks.topdown.settings import TopdownSettings, universe_waves
from ..tasks.topdown.spine.files import shards_by_geolevel
from ..tasks.topdown.steps import build_spine, constrain, measure
from .running import CHARGED_FIRST, flow_of_product
from .stages import Future, charge, finish, stage
from .topdown_stages import TopdownStages


def stages(run: RunDirectory, settings: TopdownSettings) -> None:
    """Submit the stages of a run, for all universes in parallel."""
    common, universes = TopdownStages(run, settings), settings.run.universes
    root = common.root
    ingested = read_input(run, settings)
    finish()
    spines: dict[str, Future] = {}
    for universe in universes:
        with stage("spine", f"{universe} spine"):
            spines[universe] = build_spine.submit(root, universe, wait_for=[ingested])
    finish()  # The shards to measure are in the spines.
    charged = charge(root, wait_for=spines.values())

    # The universes of a wave may need the released counts of universes in earlier waves.
    waves = universe_waves(settings)
    constrained: dict[str, Future] = {}
    for universe in waves[0]:
        with stage("constraints", f"{universe} constraints"):
            constrained[universe] = constrain.submit(root, universe, wait_for=[spines[universe]])
    measured: dict[tuple[str, str], list[Future]] = {}
    for universe in (one for one in universes if not settings.is_on_demand(one)):
        for geolevel, shards in shards_by_geolevel(run, universe).items():
            with stage("measure", f"{universe} measure {geolevel}"):
                measured[universe, geolevel] = [
                    measure.submit(root, universe, geolevel, shard.name, wait_for=[charged])
                    for shard in shards
                ]
    finish()

    predicted = common.predict_accuracy(spines)
    margins = list[Future]()
    estimated: dict[str, list[Future]] = {}
    for wave in waves:
        for universe in (one for one in wave if one not in constrained):
            with stage("constraints", f"{universe} constraints"):
                constrained[universe] = constrain.submit(
                    root, universe, wait_for=[spines[universe]]
                )
        finish()
        if len(constrained) == len(universes):
            # The estimates for margins need the constraints of every universe.
            margins = common.begin_margins([*constrained.values(), *chain(*measured.values())])
        estimated |= common.estimate_universes(wave, measured, constrained)

    written = common.write_release(estimated, margins)
    compared = common.compare_with_input(predicted, estimated)
    finish([*written, *margins, *predicted.values()])
    common.check_and_release(spines, written, compared)


def read_input(run: RunDirectory, settings: TopdownSettings) -> Future:
    """Submit the tasks that read the input. Several tasks read a large input in parallel: each
    counts a share of the records, and then compares the digests of a share of the people."""
    root, n_tasks = str(run.root), n_shares(run, settings)
    numbers = range(n_tasks)
    with stage("ingest"):
        if n_tasks == 1:
            return ingest.submit(root)
        referred = read_referred.submit(root)
        counted = [count_records.submit(root, n, n_tasks, wait_for=[referred]) for n in numbers]
        checked = check_records.submit(root, n_tasks, wait_for=counted)
        known = [recognise_people.submit(root, n, n_tasks, wait_for=[checked]) for n in numbers]
        return ingest.submit(root, wait_for=known)


topdown = flow_of_product(
    TOPDOWN,
    stages,
    "Releases microdata of persons and housing units, and redistricting tables, by the TopDown "
    f"Algorithm. {CHARGED_FIRST}",
)
