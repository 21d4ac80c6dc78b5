"""The TopDown flow: from census-like tables to privacy-protected microdata.

    ingest -> spine -> charge -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata -> checks -> release -> report

The spine is summarised for the report at the side, while estimates are made.

Persons and housing units run side by side. All data travel through the run directory; what the
tasks hand to each other are names and digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run

from flows.progress import finish_stage
from flows.public_tables import publish_tables
from flows.runners import task_runner
from tasks.checks.steps import check_release, publish_release, report_run
from tasks.errors import SpineflowError
from tasks.estimation.steps import estimate
from tasks.ingest.steps import ingest
from tasks.measurement.steps import charge_ledger, constrain, measure
from tasks.release.steps import write_microdata
from tasks.run_directory import RunDirectory, settings_digest, start_run
from tasks.settings import Settings, dump_settings, frozen_settings, load_settings
from tasks.spine.build import check_spine_settings
from tasks.spine.shards import Shard, read_shards
from tasks.spine.steps import build_spine, summarise_spine

PRODUCT = "topdown"
PRESETS = Path(__file__).parent / "settings"


def default_run_directory(settings: Settings) -> Path:
    """`runs/` and a name from the dataset and settings: the same settings continue one run."""
    digest = settings_digest(dump_settings(settings))
    return Path("runs") / f"{settings.privacy.dataset}-{PRODUCT}-{digest[:8]}"


def prepare(settings: Settings, run_directory: str | Path) -> RunDirectory:
    """Start or continue the run of these settings in a directory; nothing is measured yet."""
    run = RunDirectory(Path(run_directory).resolve())
    with run.locked():
        start_run(
            run,
            product=PRODUCT,
            settings_text=dump_settings(settings),
            private=settings.is_private,
        )
    return run


@flow(name="topdown", persist_result=False)
def topdown(settings_file: str, run_directory: str, overrides: list[str] | None = None) -> str:
    """Run a settings file on this machine; what a deployment calls.

    Args:
        settings_file: TOML settings, as for `spineflow run topdown`.
        run_directory: folder of the run; a started run with the same settings is continued.
        overrides: `section.key=value` strings that win over the file.
    """
    settings = load_settings(settings_file, presets=PRESETS, overrides=overrides or ())
    check_spine_settings(settings)
    return run_stages(prepare(settings, run_directory), settings)


def run_stages(run: RunDirectory, settings: Settings) -> str:
    """Run a prepared run's stages with the task runner that the settings choose."""
    stages = topdown_stages.with_options(task_runner=task_runner(settings.run))
    return stages(str(run.root))


def _run_name() -> str:
    return f"topdown-{Path(flow_run.parameters['run_directory']).name}"


@flow(name="topdown-stages", flow_run_name=_run_name, persist_result=False)
def topdown_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    run = RunDirectory(Path(run_directory))
    with run.locked():
        run.refuse_edited_settings()
        settings = frozen_settings(run.settings)
        try:
            _run_all(run, settings)
        except SpineflowError as error:
            if not run.release.exists():
                run.update_manifest(status="failed", reason=str(error))
            raise
        run.update_manifest(status="complete", reason="")
    return str(run.release)


def _run_all(run: RunDirectory, settings: Settings) -> None:
    root, universes = str(run.root), settings.run.universes
    ingested = ingest.submit(root)
    _finish(run, {"ingest": [ingested]})
    if ingested.result().facts:
        run.update_manifest(input_digests=dict(ingested.result().facts))
    spines = {
        universe: build_spine.submit(root, universe, wait_for=[ingested]) for universe in universes
    }
    _finish(run, {f"{universe} spine": [spine] for universe, spine in spines.items()})
    measured = _measure(run, spines)
    summarised = {
        f"{universe} spine summary": [summarise_spine.submit(root, universe, wait_for=[spine])]
        for universe, spine in spines.items()
    }
    publish_tables(run, settings)
    released = _release(run, _estimate(run, universes, measured))
    _finish(run, summarised)
    _finish(run, {"report": [report_run.submit(root, wait_for=[released])]})


Measured = dict[tuple[str, str], list[PrefectFuture]]
"""What a universe's geolevel needs before it is estimated: its measurements and constraints."""


def _measure(run: RunDirectory, spines: dict[str, PrefectFuture]) -> Measured:
    """Charge the ledger, then draw the noise of every geolevel and write its constraints."""
    root = str(run.root)
    charged = charge_ledger.submit(root, wait_for=list(spines.values()))
    _finish(run, {"ledger": [charged]})
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
    _finish(
        run,
        {f"{universe} constraints": [future] for universe, future in constrained.items()}
        | {
            f"{universe} measure {geolevel}": made
            for (universe, geolevel), made in measured.items()
        },
    )
    return {key: [*made, constrained[key[0]]] for key, made in measured.items()}


def _estimate(
    run: RunDirectory, universes: Sequence[str], measured: Measured
) -> dict[str, list[PrefectFuture]]:
    """Estimate geolevel by geolevel, root first; returns each universe's tasks of the blocks.

    The universes go down side by side, each waiting for its own geolevel above.
    """
    above: dict[str, list[PrefectFuture]] = {universe: [] for universe in universes}
    shards = {universe: list(_shards(run, universe).items()) for universe in universes}
    for depth in range(max(len(geolevels) for geolevels in shards.values())):
        wave = {}
        for universe in universes:
            if depth < len(shards[universe]):
                geolevel, geolevel_shards = shards[universe][depth]
                wait_for = [*measured[universe, geolevel], *above[universe]]
                above[universe] = wave[f"{universe} estimate {geolevel}"] = [
                    estimate.submit(str(run.root), universe, geolevel, s.name, wait_for=wait_for)
                    for s in geolevel_shards
                ]
        _finish(run, wave)
    return above


def _release(run: RunDirectory, blocks: dict[str, list[PrefectFuture]]) -> PrefectFuture:
    """Write microdata, check them and everything before, and publish what has passed."""
    root = str(run.root)
    written = {
        universe: write_microdata.submit(root, universe, wait_for=estimated)
        for universe, estimated in blocks.items()
    }
    _finish(run, {f"{universe} microdata": [future] for universe, future in written.items()})
    checked = check_release.submit(root, wait_for=list(written.values()))
    _finish(run, {"checks": [checked]})
    published = publish_release.submit(root, wait_for=[checked])
    _finish(run, {"release": [published]})
    return published


def _shards(run: RunDirectory, universe: str) -> dict[str, list[Shard]]:
    """The shards of a universe by geolevel, root first."""
    shards: dict[str, list[Shard]] = {}
    for shard in read_shards(run.spine(universe)):
        shards.setdefault(shard.geolevel, []).append(shard)
    return shards


def _finish(run: RunDirectory, stages: dict[str, list[PrefectFuture]]) -> None:
    """Wait for stages and enter them in the manifest."""
    finish_stage(stages)
    run.record_stages(
        {stage: [future.result() for future in made] for stage, made in stages.items()}
    )
