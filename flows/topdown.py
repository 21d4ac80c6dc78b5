"""The TopDown flow: from census-like tables to privacy-protected microdata.

    ingest -> spine -> charge -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata -> tables -> checks -> release -> accuracy, report

With full information, measurements are combined from the blocks up before they are estimated.
The spine is summarised for the report at the side, while estimates are made.

Persons and housing units run side by side. All data travel through the run directory; what the
tasks hand to each other are names and digests.
"""

from __future__ import annotations

from pathlib import Path

from prefect import Task, flow
from prefect.futures import PrefectFuture
from spineflow.flows.console import (
    print_rules,
    print_topdown_costs,
    topdown_costs,
    topdown_finished,
    topdown_needs,
)
from spineflow.flows.public_tables import (
    publish_accuracy,
    publish_budgets,
    publish_geounits,
    publish_outcome,
    publish_solves,
)
from spineflow.flows.running import (
    Product,
    entered,
    finish,
    run_settings_file,
    settings_run_name,
    stages_run_name,
)
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.queries import read_accuracy
from spineflow.tasks.topdown.checks.accuracy.run import write_comparison, write_run_accuracy
from spineflow.tasks.topdown.checks.accuracy.steps import compare_with_truth
from spineflow.tasks.topdown.checks.steps import check_release, publish_release, report_run
from spineflow.tasks.topdown.estimation.estimators import estimator_of
from spineflow.tasks.topdown.estimation.steps import combine, estimate
from spineflow.tasks.topdown.ingest.ingest import check_input_of, refuse_large_deltas
from spineflow.tasks.topdown.ingest.steps import ingest
from spineflow.tasks.topdown.measurement.steps import charge_ledger, constrain, measure
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.release.report import write_report
from spineflow.tasks.topdown.release.steps import write_microdata
from spineflow.tasks.topdown.release.tabulations.run import tabulated_universes
from spineflow.tasks.topdown.release.tabulations.steps import write_redistricting_tables
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import check_spine_settings, universe_spine
from spineflow.tasks.topdown.spine.shards import Shard, read_shards
from spineflow.tasks.topdown.spine.steps import build_spine, summarise_spine
from spineflow.tasks.topdown.spine.summary import has_summary, write_summary


@flow(name="topdown", flow_run_name=settings_run_name, persist_result=False)
def topdown(settings_file: str, run_directory: str = "", overrides: tuple[str, ...] = ()) -> str:
    """Run a settings file on this machine; what a deployment calls.

    Args:
        settings_file: Full path of the TOML settings, as the worker sees it.
        run_directory: Folder of the run; a started run with the same settings is continued. Left
            out, it is named after the dataset and the settings, in runs/ beside the settings.
        overrides: Settings that win over the file, each written as section.key=value.
    """
    return run_settings_file(PRODUCT, settings_file, run_directory, overrides)


@flow(name="topdown-stages", flow_run_name=stages_run_name, persist_result=False)
def topdown_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, TopdownSettings) as (run, settings):
        _run_all(run, settings)
    return str(run.release)


def check(settings: TopdownSettings) -> None:
    """Check the tables against every rule and build the spines from them; draw no noise."""
    found = check_input_of(settings)
    with_counts = not settings.input.confidential
    print_rules(found, with_counts=with_counts)
    accepted = found.accepted(with_counts=with_counts)
    refuse_large_deltas(settings, sum(accepted.state_totals.values()))
    for universe in settings.run.universes:
        universe_spine(settings, universe, accepted.geography, accepted.invariants)


def report(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Write the report again, with the spine's summary if it is missing."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    write_run_accuracy(run, settings)
    accuracy = None if settings.input.confidential else read_accuracy(run)
    return write_report(run, settings, accuracy)


PRODUCT = Product(
    settings=TopdownSettings,
    flow=topdown,
    stages=topdown_stages,
    check=check,
    costs=topdown_costs,
    print_costs=print_topdown_costs,
    finished=topdown_finished,
    report=report,
    compare=write_comparison,
    needed=topdown_needs,
    refuse=check_spine_settings,
)


def _run_all(run: RunDirectory, settings: TopdownSettings) -> None:
    root, universes = str(run.root), settings.run.universes
    publish_budgets(settings)
    ingested = ingest.submit(root)
    finish(run, {"ingest": [ingested]})
    if ingested.result().facts:
        run.update_manifest(input_digests=dict(ingested.result().facts))
    spines = {
        universe: build_spine.submit(root, universe, wait_for=[ingested]) for universe in universes
    }
    finish(run, {f"{universe} spine": [spine] for universe, spine in spines.items()})
    measured = _measure(run, spines)
    summarised = {
        f"{universe} spine summary": [summarise_spine.submit(root, universe, wait_for=[spine])]
        for universe, spine in spines.items()
    }
    publish_geounits(run, settings)
    estimated = _estimate(run, settings, measured)
    publish_solves(run)
    released = _release(run, settings, estimated)
    finish(run, summarised)
    compared = compare_with_truth.submit(root, wait_for=[released])
    finish(run, {"accuracy": [compared]})
    finish(run, {"report": [report_run.submit(root, wait_for=[compared])]})
    publish_outcome(run, settings)
    publish_accuracy(run, settings)


Measured = dict[tuple[str, str], list[PrefectFuture]]
"""What a universe's geolevel needs before it is estimated: its measurements and constraints."""


def _measure(run: RunDirectory, spines: dict[str, PrefectFuture]) -> Measured:
    """Charge the ledger, then draw the noise of every geolevel and write its constraints."""
    root = str(run.root)
    charged = charge_ledger.submit(root, wait_for=list(spines.values()))
    finish(run, {"ledger": [charged]})
    constrained = {
        universe: constrain.submit(root, universe, wait_for=[spine])
        for universe, spine in spines.items()
    }
    measured = {
        (universe, geolevel): [
            measure.submit(root, universe, geolevel, shard.name, wait_for=[charged])
            for shard in shards
        ]
        for universe in spines
        for geolevel, shards in _shards(run, universe).items()
    }
    finish(
        run,
        {f"{universe} constraints": [future] for universe, future in constrained.items()}
        | {
            f"{universe} measure {geolevel}": made
            for (universe, geolevel), made in measured.items()
        },
    )
    return {key: [*made, constrained[key[0]]] for key, made in measured.items()}


def _estimate(
    run: RunDirectory, settings: TopdownSettings, measured: Measured
) -> dict[str, list[PrefectFuture]]:
    """Estimate every universe; returns each universe's tasks that came last.

    Top down from the root or bottom up from the blocks, as the estimator needs it; where it
    combines measurements first, that is done from the blocks up before.
    """
    estimator = estimator_of(settings)
    last: dict[str, list[PrefectFuture]] = {name: [] for name in settings.run.universes}
    down = {universe: list(_shards(run, universe)) for universe in last}
    up = {universe: geolevels[::-1] for universe, geolevels in down.items()}
    if estimator.combine is not None:
        below_root = {universe: geolevels[:-1] for universe, geolevels in up.items()}
        _go(run, combine, "combine", below_root, measured, last)
    _go(run, estimate, "estimate", up if estimator.is_bottom_up else down, measured, last)
    return last


def _go(
    run: RunDirectory,
    task: Task,
    stage: str,
    geolevels: dict[str, list[str]],
    measured: Measured,
    last: dict[str, list[PrefectFuture]],
) -> None:
    """Run a task on every shard, geolevel by geolevel in each universe's order.

    The universes go side by side, each waiting for its own geolevel before, whose tasks are kept
    in `last`.
    """
    for depth in range(max(map(len, geolevels.values()))):
        wave = {}
        for universe, names in geolevels.items():
            if depth < len(names):
                geolevel = names[depth]
                wait_for = [*measured[universe, geolevel], *last[universe]]
                last[universe] = wave[f"{universe} {stage} {geolevel}"] = [
                    task.submit(str(run.root), universe, geolevel, s.name, wait_for=wait_for)
                    for s in _shards(run, universe)[geolevel]
                ]
        finish(run, wave)


def _release(
    run: RunDirectory, settings: TopdownSettings, blocks: dict[str, list[PrefectFuture]]
) -> PrefectFuture:
    """Write microdata and tables, check them and everything before, publish what has passed."""
    root = str(run.root)
    written = {
        universe: write_microdata.submit(root, universe, wait_for=estimated)
        for universe, estimated in blocks.items()
    }
    finish(run, {f"{universe} microdata": [future] for universe, future in written.items()})
    made = list(written.values())
    if tabulated_universes(settings):
        made = [write_redistricting_tables.submit(root, wait_for=made)]
        finish(run, {"tables": made})
    checked = check_release.submit(root, wait_for=made)
    finish(run, {"checks": [checked]})
    published = publish_release.submit(root, wait_for=[checked])
    finish(run, {"release": [published]})
    return published


def _shards(run: RunDirectory, universe: str) -> dict[str, list[Shard]]:
    """The shards of a universe by geolevel, root first."""
    shards: dict[str, list[Shard]] = {}
    for shard in read_shards(spine_folder(run, universe)):
        shards.setdefault(shard.geolevel, []).append(shard)
    return shards
