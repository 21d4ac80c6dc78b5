"""Replicates: a run's noise and estimates again and again, in one process and without Prefect.

For studies and for tuning, on data that are not confidential. The input is read once, the spines
and constraints of some settings are laid out once, and every replicate is measured and estimated
by the code of the flow, under its own seed. Each step makes a run directory of its own that links
to its inputs, so that one replicate can be estimated in several ways:

    dataset = read_dataset(settings, folder / "dataset")
    layout = lay_out(dataset, settings, folder / "layout")
    measured = measure(layout, with_seed(settings, 1), folder / "measured")
    run = estimate(measured, settings, folder / "estimated")
    errors_of(run, settings)

`study` does this for several settings and many seeds.

`expected_errors` are the errors that a release can be expected to have, from the release itself: it
cannot report its distance from the truth without revealing something about the truth. But the
mechanism is public: measured and estimated again with fresh noise, as if the released counts were
the true ones, it is off by about as much as the release itself was. Nothing confidential is read,
and no budget is spent. Losses of the release, such as the smallest groups, the simulation cannot
lose again: where counts are mostly zero, expect somewhat more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import pandas as pd

from ...census.histograms import write_histogram
from ...census.invariants import write_state_totals
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.settings import refuse_in
from ..estimation.estimate import ShardInput
from ..estimation.largest_solve import refuse_settings
from ..estimation.steps import COMBINE, ESTIMATE, estimation_order, estimator_of
from ..ingest.ingest import ingest_input
from ..measurement.measure import measure_once
from ..measurement.public_answers import constrain_universe
from ..paths import geography_file, held_file, invariants_file, state_totals_file
from ..settings import TopdownSettings, universe_waves
from ..spine.build import write_universe_spine
from ..spine.files import RunUniverse, released_counts, shards_by_geolevel, shards_of, spine_of
from ..workload.sections import ESTIMATORS, Estimator
from .accuracy.compared import compute_figures
from .accuracy.errors import ALL_ANSWERS


def with_seed(settings: TopdownSettings, seed: int) -> TopdownSettings:
    """The settings of the replicate with this seed."""
    return settings.with_section("privacy", seed=seed)


def with_estimator(settings: TopdownSettings, estimator: str) -> TopdownSettings:
    """The settings with another estimator."""
    return settings.with_section("run", estimator=estimator)


def possible_estimators(settings: TopdownSettings) -> tuple[Estimator, ...]:
    """The estimators that support the declarations of the settings."""

    def is_possible(name: Estimator) -> bool:
        own = with_estimator(settings, name)
        try:
            own.refuse_invalid(refuse_in(name))
            refuse_settings(own)
        except InputRefused:
            return False
        return True

    return tuple(name for name in ESTIMATORS if is_possible(name))


def read_dataset(settings: TopdownSettings, folder: Path) -> RunDirectory:
    """Read and check the input tables of the settings.

    Raises InputRefused for confidential input, since no ledger records replicates, and for
    universes that are measured on demand.
    """
    if settings.input.confidential:
        raise InputRefused(
            "Replicates would spend privacy that no ledger records; set input.confidential = false "
            "if these data may be disclosed."
        )
    if not settings.has_all_measurements:
        raise InputRefused(
            "Replicates estimate the same measurements in several ways, which needs them all; take "
            "on_demand out of the workload."
        )
    dataset = RunDirectory(folder)
    folder.mkdir(parents=True)
    ingest_input(dataset, with_seed(with_estimator(settings, "topdown"), 0))
    return dataset


def lay_out(dataset: RunDirectory, settings: TopdownSettings, folder: Path) -> RunDirectory:
    """Build the spines and write the constraints that the settings ask for.

    The settings may differ from the settings of the dataset in everything except the input, the
    universes and the attributes of their schemas.
    """
    public = [geography_file(dataset), invariants_file(dataset)]
    public += [held_file(dataset)] if settings.is_held else []
    drops_totals = settings.blocks_only and settings.compiled_census.follows_block_rules
    public += [] if drops_totals else [state_totals_file(dataset)]
    names = [path.relative_to(dataset.root).as_posix() for path in public]
    run = link_run(dataset, folder, "confidential", *names)
    if drops_totals:
        write_state_totals(state_totals_file(run), {})
    for universe in settings.run.universes:
        write_universe_spine(run, settings, universe)
        if not _is_constrained_by_releases(settings, universe):
            constrain_universe(run, settings, universe)
    return run


def _is_constrained_by_releases(settings: TopdownSettings, universe: str) -> bool:
    """Whether a universe is constrained by releases of others, which differ between replicates."""
    return bool(settings.compiled_census.universes[universe].needs)


def measure(layout: RunDirectory, settings: TopdownSettings, folder: Path) -> RunDirectory:
    """Draw the noise of the replicate that `privacy.seed` of the settings names."""
    run = link_run(layout, folder, "confidential", "spine")
    for universe in settings.run.universes:
        for geolevel in spine_of(run, universe).names:
            if not _is_constrained_by_releases(settings, universe):
                link_run(layout, folder, f"measurements/{universe}/{geolevel}/constraints")
        for shard in shards_of(run, universe):
            measure_once(RunUniverse(run, settings, universe), shard)
    return run


def estimate(measured: RunDirectory, settings: TopdownSettings, folder: Path) -> RunDirectory:
    """Estimate every universe of a measured replicate by `run.estimator` of the settings."""
    run = link_run(measured, folder, "confidential", "spine")
    estimator = estimator_of(settings)
    steps: dict[str, Callable[[ShardInput], object]] = {ESTIMATE: estimator.estimate}
    if estimator.combine is not None:
        steps[COMBINE] = estimator.combine
    for universe in chain(*universe_waves(settings)):
        own = RunUniverse(run, settings, universe)
        names, shards = own.spine.names, shards_by_geolevel(run, universe)
        if _is_constrained_by_releases(settings, universe):
            for geolevel in names:
                link_run(measured, folder, f"measurements/{universe}/{geolevel}/dpqueries")
            constrain_universe(run, settings, universe)
        else:
            link_run(measured, folder, f"measurements/{universe}")
        for stage, geolevel in estimation_order(settings, names):
            for shard in shards[geolevel]:
                steps[stage](ShardInput.read(own, shard))
    return run


def run_replicate(
    layout: RunDirectory, settings: TopdownSettings, seed: int, folder: Path
) -> tuple[RunDirectory, TopdownSettings]:
    """Measure and estimate the replicate with this seed in a folder; its run and its settings."""
    seeded = with_seed(settings, seed)
    measured = measure(layout, seeded, folder / "measured")
    return estimate(measured, seeded, folder / "estimated"), seeded


def errors_of(run: RunDirectory, settings: TopdownSettings) -> pd.DataFrame:
    """The errors of a run by universe, quantity and level; see `AccuracyFigures.together`."""
    return compute_figures(run, settings).together


Figures = Callable[[RunDirectory, TopdownSettings], pd.DataFrame]


def study(
    choices: Mapping[str, TopdownSettings],
    seeds: Iterable[int],
    folder: Path,
    figures: Figures = errors_of,
) -> Iterator[pd.DataFrame]:
    """Figures of one replicate of each choice of settings, for seed after seed.

    The choices must share their input. Choices that differ only in how measurements are estimated
    get the same noise. Yields the frames of `figures` with the columns `choice` and `seed` added;
    the replicates are removed from `folder` as it goes.
    """
    dataset = read_dataset(next(iter(choices.values())), folder / "dataset")
    layouts: dict[str, RunDirectory] = {}
    for seed in seeds:
        measured: dict[str, RunDirectory] = {}
        for name, settings in choices.items():
            seeded = with_seed(settings, seed)
            if not settings.blocks_only:
                settings = with_estimator(settings, "topdown")
            key = settings.model_dump_json()
            if key not in layouts:
                layouts[key] = lay_out(dataset, settings, folder / f"layout-{len(layouts)}")
            if key not in measured:
                measured[key] = measure(layouts[key], seeded, folder / f"measured-{len(measured)}")
            run = estimate(measured[key], seeded, folder / "estimated")
            found = figures(run, seeded)
            shutil.rmtree(run.root)
            yield found.assign(choice=name, seed=seed)
        for run in measured.values():
            shutil.rmtree(run.root)


def link_run(source: RunDirectory, folder: Path, *names: str) -> RunDirectory:
    """The run directory `folder`, made if need be, with links to these entries of another."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(source.root / name)
    return RunDirectory(folder)


SIMULATED = (
    "pairs",
    "root_mean_square_error",
    "predicted_standard_deviation",
    "bias",
    "mean_absolute_error",
    "false_zeros",
    "false_positives",
)
"""Statistics of the simulated errors."""
KEYS = ("universe", "quantity", "level", "size_class")
_ROOTS = ["root_mean_square_error", "predicted_standard_deviation"]
"""Roots of mean squares, which are averaged as such."""


def expected_errors(
    run: RunDirectory, settings: TopdownSettings, replicates: int, folder: Path
) -> pd.DataFrame:
    """Mean figures of replicates whose truth is the release of a run; columns `KEYS`, `SIMULATED`.

    Works in `folder`. Raises InputRefused for a run without noise.
    """
    if settings.privacy.infinite:
        raise InputRefused(f"{run.root}: errors can be expected of releases with noise.")
    settings = settings.with_section("input", confidential=False)
    layout = _lay_out_release(run, settings, folder / "release")
    frames = []
    for seed in range(1, replicates + 1):
        errors = compute_figures(*run_replicate(layout, settings, seed, folder / str(seed))).errors
        frames.append(errors[errors["answer"] == ALL_ANSWERS])
    together = pd.concat(frames)
    together[_ROOTS] **= 2
    means = together.groupby(list(KEYS), sort=False)[list(SIMULATED)].mean().reset_index()
    means[_ROOTS] **= 0.5
    return means


def _lay_out_release(run: RunDirectory, settings: TopdownSettings, folder: Path) -> RunDirectory:
    """A laid out run whose truth is the release of another."""
    layout = link_run(run, folder, "spine")
    for universe in settings.run.universes:
        spine = spine_of(run, universe)
        for geolevel in spine.names:
            link_run(run, folder, f"measurements/{universe}/{geolevel}/constraints")
        n_cells = settings.schema_of(universe).n_cells
        counts = released_counts(run, universe, spine.geolevels[-1], n_cells)
        write_histogram(layout.histogram(universe), counts, spine.block_geocode)
    return layout
