"""Common parts of the flows of all products: prepare a run, lock it, run its stages.

The flow of a product is that of a settings file, a form, or a run that was begun.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from prefect import Flow, tags
from prefect.context import TagsContext
from prefect.runtime import flow_run
from prefect.states import Cancelled
from pydantic import Field

from ..tasks.ledger.charging import warnings_of as warnings_of_ledger
from ..tasks.ledger.identity import refuse_changed_input
from ..tasks.products.acceptance import warnings_of
from ..tasks.products.product import Product, parts_of
from ..tasks.products.steps import copy_checked_release
from ..tasks.runs.damage import is_needed, mend, record_files
from ..tasks.runs.directory import (
    LEDGER,
    RELEASE_CHANGED,
    RELEASE_STAGES,
    RunDirectory,
    discard_stages,
    refuse_odd_name,
    refuse_other_folders,
    remove_unfinished,
    settings_digest,
    start_run,
)
from ..tasks.runs.errors import CheckFailed, InputRefused, SpineflowError
from ..tasks.runs.publication import copy_release, refuse_taken_place
from ..tasks.runs.settings import (
    ProductSettings,
    RunnerSettings,
    have_same_draws,
    have_same_release,
    with_runner,
)
from ..tasks.runs.settings_files import dump_settings, frozen_settings, settings_of_run
from .endings import (
    NO_ANSWER,
    RunCancelled,
    add_tags,
    emit_failed_check,
    emit_near_cap,
    emit_published,
    explain_error,
    mark_ended,
    was_cancelled,
    watched,
)
from .form import SettingsForm, form_of, text
from .kernels import compile_in_background
from .logs import LOGGER, set_resume_hint
from .registry import DECIDED_ON_THE_WAY, flow_of, stages_of
from .results import begin_run, run_id, show_failed_rules, show_notes, show_outcome
from .runners import chosen_runner, task_runner
from .servers import server_for_runs
from .stages import Body, Stages, stage

PUBLICATION = "publication"
"""The stage that copies a release to its place in the settings."""

_PREPARED: ContextVar[tuple[Path, ProductSettings] | None] = ContextVar("_PREPARED", default=None)
"""Folder and settings of the run that the caller of a flow has prepared; their runner may differ
from the frozen one."""

Settings = TypeVar("Settings", bound=ProductSettings)


def default_run_directory(settings: ProductSettings, settings_file: str | Path) -> Path:
    """Default folder of a run: in `runs/` next to its settings file.

    The folder is named by the dataset and the settings, so that the same settings continue one
    run for any user, working directory and runner.
    """
    own = with_runner(settings, RunnerSettings(runner="threads"))
    digest = settings_digest(dump_settings(own))
    name = f"{settings.privacy.dataset}-{settings.PRODUCT}-{digest[:8]}"
    return Path(settings_file).parent.resolve() / "runs" / name


def prepare(settings: ProductSettings, run_directory: str | Path) -> RunDirectory:
    """Create or continue the run of these settings in a directory; no stage is run."""
    run = RunDirectory(Path(run_directory).resolve())
    refuse_odd_name(run)
    # Before locking, which creates a file. Locking reports faults of the disk.
    with suppress(OSError):
        refuse_other_folders(run)
    refuse_taken_place(run, settings)
    with run.locked():
        text = dump_settings(settings)
        if _has_run_of(run, settings):
            # Another version may have written the same settings in another form.
            text = run.settings.read_text(encoding="utf-8")
        try:
            start_run(run, product=settings.PRODUCT, settings_text=text, stamp=settings.stamp)
        except OSError as error:
            raise explain_error(error, str(run.root), settings.run) from None
        _mend(run)
        _change_release(run, settings)
    return run


def _change_release(run: RunDirectory, settings: ProductSettings) -> None:
    """Apply the present [release] to a run; charged settings are unchanged.

    Raises InputRefused if the run has been released, unless only `publish_to` has changed.
    """
    before = settings_of_run(type(settings), run).release.model_dump()
    after = settings.release.model_dump()
    if after == before:
        return
    changed = [f"release.{key}" for key in after if after[key] != before[key]]
    if changed != ["release.publish_to"]:
        if run.release.exists():
            raise InputRefused(
                f"{run.root} has been released with another {', '.join(changed)}; choose another "
                f"--run-dir, or remove {run.release} and continue the run with 'spineflow resume', "
                "which makes the release again from its measurements."
            )
        discard_stages(run, RELEASE_STAGES)
    run.update_manifest(**{RELEASE_CHANGED: after})


def _mend(run: RunDirectory) -> None:
    """Remove and report damaged files that can be made again; raises as `mend`."""
    for sentence in mend(run):
        LOGGER.info("%s.", sentence)


def _has_run_of(run: RunDirectory, settings: ProductSettings) -> bool:
    """Whether a run of these settings, on any runner, has been started in a directory."""
    if not run.manifest.exists() or run.read_manifest()["product"] != settings.PRODUCT:
        return False
    run.refuse_edited_settings()
    return have_same_draws(frozen_settings(type(settings), run.settings), settings)


def is_done(product: Product, run: RunDirectory, settings: ProductSettings) -> bool:
    """Whether a prepared run is finished and all its files are unchanged; copies a finished release
    to its place once more if it is gone from there.

    Raises InputRefused if the input has changed since it was read, as `mend` and `copy_release`.
    """
    parts = list(parts_of(run, settings))
    if product.name in DECIDED_ON_THE_WAY and len(parts) == 1:
        return False
    for part, _ in parts[1:]:
        if part.manifest.exists():
            with part.locked():
                _mend(part)
    if not all(_is_complete(part) for part, _ in parts):
        return False
    for part, own in parts:
        refuse_changed_input(part, own)
        if own.published_to is not None:
            copy_release(part, own.published_to)
    return True


def _is_complete(run: RunDirectory) -> bool:
    """Whether a run is complete and has every file of its stages."""
    manifest = run.read_manifest()
    if manifest["status"] != "complete":
        return False
    files = {
        run.root / path
        for name, stage in manifest["stages"].items()
        for path in stage["digests"]
        if name != PUBLICATION
    }
    files |= {run.root / path for path in manifest.get("beside", {}) if is_needed(path)}
    # Files of the release are recorded under the folder in which they were checked.
    unchecked = {path for path in files if path.is_relative_to(run.unchecked_release)}
    released = {run.release / path.relative_to(run.unchecked_release) for path in unchecked}
    return all(path.exists() for path in {run.report, *released, *files} - unchecked)


def run_stages(product: Product, run: RunDirectory, settings: ProductSettings) -> str:
    """Run the stages of a prepared run by its flow, with the task runner of these settings.

    The runner may differ from the frozen one. The flow run is tagged with the dataset, the
    product and the runner. Returns the release's folder.
    """
    with override_runner(run, settings), tags(*tags_of(settings)):
        try:
            with server_for_runs() as server:
                server.wait()
                return flow_of(product.name)(run_directory=str(run.root))
        except RunCancelled:
            mark_ended(run_id(str(run.root)), Cancelled())
            raise
        except Exception as error:
            raise explain_error(error, str(run.root), settings.run) from None


def tags_of(settings: ProductSettings) -> tuple[str, ...]:
    """The tags of a flow run."""
    return settings.privacy.dataset, settings.PRODUCT, chosen_runner(settings.run)


@contextmanager
def override_runner(run: RunDirectory, settings: ProductSettings) -> Iterator[None]:
    """In the block, a prepared run has the runner of these settings instead of its frozen one."""
    before = _PREPARED.set((run.root, settings))
    try:
        yield
    finally:
        _PREPARED.reset(before)


@contextmanager
def enter_run(run_directory: str, model: type[Settings]) -> Iterator[tuple[RunDirectory, Settings]]:
    """Lock a prepared run while a flow runs its stages; raises as `lock_run`."""
    with lock_run(run_directory, model) as (run, settings):
        begin_run(run_directory, flow_run.id)
        was_released = run.release.exists()
        try:
            # Tasks have the tags of their stage alone.
            with TagsContext(current_tags=set()), watched(flow_run.id):
                yield run, settings
            if not was_released:
                emit_published(run, settings)
        except CheckFailed as error:
            emit_failed_check(run, settings, error)
            raise
        except InputRefused:
            # The refusal is raised even if the server does not answer.
            with suppress(*NO_ANSWER):
                show_failed_rules(run)
            raise


def run_stages_in_process(product: Product, run: RunDirectory, settings: ProductSettings) -> str:
    """Run a prepared run's stages in this process, one after the other, without a Prefect server.

    Returns the release's folder. Raises as `lock_run`, and ValueError for a product whose stages
    depend on results of others.
    """
    if product.name in DECIDED_ON_THE_WAY:
        raise ValueError(f"{product.name} needs a flow run of its own")
    with lock_run(str(run.root), type(settings)) as (locked, own):
        call_stages(locked, own, ended=warned_of_charge(locked, own))
        if own.published_to is not None:
            call_stages(locked, own, publish)
    return str(run.release)


def call_stages(
    run: RunDirectory,
    settings: ProductSettings,
    body: Body | None = None,
    *,
    ended: Callable[[str], None] = lambda stage: None,
    before: str = "",
) -> None:
    """Call the steps of a prepared run in this process, one after the other.

    Args:
        body: The function that submits them; by default the product's flow.
        ended: Called with the name of every stage that has ended; may raise `Stopped`.
        before: Pattern of stage names; calls stop before the first stage that matches.
    """
    chosen = stages_of(settings.PRODUCT) if body is None else body
    Stages(run, settings, None, ended=ended, before=before).run(chosen)


def publish(run: RunDirectory, _settings: ProductSettings) -> None:
    """Copy a release to its place in the settings."""
    with stage(PUBLICATION):
        copy_checked_release.submit(str(run.root))


def warned_of_charge(
    run: RunDirectory,
    settings: ProductSettings,
    notes: Callable[[], Sequence[str]] = tuple,
) -> Callable[[str], None]:
    """Returns a callback for ended stages, which logs warnings about the ledger, and `notes`.

    The callback logs them after the charge, before anything is drawn, so that a run refused
    earlier reports one sentence alone. Raises as `warnings_of` of the ledger.
    """
    is_charged = LEDGER in run.read_manifest()["stages"]
    warnings = [] if is_charged else warnings_of_ledger(settings)

    def ended(stage: str) -> None:
        if stage != LEDGER or is_charged:
            return
        for warning in warnings:
            LOGGER.warning(warning)
        for note in notes():
            LOGGER.info("%s.", note)

    return ended


@contextmanager
def lock_run(run_directory: str, model: type[Settings]) -> Iterator[tuple[RunDirectory, Settings]]:
    """Lock a prepared run while its stages run; its manifest records how they ended.

    Raises InputRefused if the frozen settings were edited, SpineflowError if the run is in use, and
    the `SpineflowError` that explains any error of a stage.
    """
    run = RunDirectory(Path(run_directory))
    with run.locked():
        run.refuse_edited_settings()
        settings = settings_of_run(model, run)
        root, prepared = _PREPARED.get() or (None, None)
        if (
            root == run.root
            and isinstance(prepared, model)
            and have_same_release(settings, prepared)
        ):
            settings = prepared
        set_resume_hint(run_directory)
        try:
            if run.read_manifest()["status"] != "complete":
                run.update_manifest(status="running")
            yield run, settings
        except Exception as error:
            public = explain_error(error, run_directory, settings.run)
            if isinstance(public, RunCancelled):
                again = f"continue it with 'spineflow resume {run_directory}'"
                public = RunCancelled(f"The run was cancelled; {again}.")
            _record_end(run, "cancelled" if isinstance(public, RunCancelled) else "failed", public)
            raise public from None
        except BaseException:
            # A signal, from a worker that cancels the run, or from the keyboard.
            _record_end(run, "cancelled" if was_cancelled() else "interrupted")
            raise
        # Killed workers may have left unfinished files.
        remove_unfinished(run)
        record_files(run)
        run.update_manifest(status="complete", reason="", warnings=list(warnings_of(run)))


def _record_end(run: RunDirectory, status: str, reason: SpineflowError | None = None) -> None:
    """Enter the status of an interrupted run in the manifest, if it can be written."""
    with suppress(OSError):
        if run.read_manifest()["status"] != "complete":
            run.update_manifest(status=status, reason="" if reason is None else str(reason))


CHARGED_FIRST = (
    "Every draw of noise is charged to the dataset's ledger first; the release appears once every "
    "check has passed."
)

FullPath = text("^(/.*)?$")
"""A full path, or nothing: a server does not know the working directory of a worker."""


def titled_parameter(title: str) -> Any:
    """The title of a parameter in the UI's form, where Prefect has the parameter's name."""
    return Field(json_schema_extra={"title": title})


def flow_of_product(product: Product, stages: Body, description: str) -> Flow[..., str]:
    """The flow of a product: settings in a file, a form or both, or a prepared run, to a release.

    The UI asks for the fields of the product's form and the arguments below, and shows
    `description`; `stages` submits the tasks.
    """
    kind = form_of(product.settings.chosen_by({}))
    empty = kind()

    def run(
        settings_file: Annotated[FullPath, titled_parameter("Settings file")] = "",  # type: ignore[valid-type]
        run_directory: Annotated[FullPath, titled_parameter("Run directory")] = "",  # type: ignore[valid-type]
        overrides: Annotated[tuple[str, ...], titled_parameter("Overrides")] = (),
        settings: Annotated[kind, titled_parameter("Settings")] = empty,  # type: ignore[valid-type]
    ) -> str:
        """Run a settings file on this machine.

        Args:
            settings_file: Full path of the TOML settings, as the worker sees it; without it, all
                settings are those below.
            run_directory: Full path of the folder of the run; a started run with the same settings
                is continued. By default it is named after the dataset and the settings, in runs/
                next to the settings file or, without one, next to the ledger; required without
                both.
            overrides: Settings that win over the file and the form, each written as
                section.key=value.
            settings: Settings that win over the file; empty ones leave the file, its preset
                or the default in effect.
        """
        form: SettingsForm = settings
        given = [*form.overrides(), *overrides]
        # Worker processes get this function as bytes, which a context variable has not.
        return _prepare_and_submit(product, stages, settings_file, run_directory, given)

    return Flow(
        run,
        name=product.name,
        description=description,
        flow_run_name=_run_name,
        persist_result=False,
    )


def _prepare_and_submit(
    product: Product, stages: Body, settings_file: str, run_directory: str, given: Sequence[str]
) -> str:
    """Start or continue the run of settings, or of a folder, and submit its stages.

    Without a run directory the run is in `default_run_directory`, with the ledger in the
    place of a missing settings file.
    """
    started = RunDirectory(Path(run_directory or "."))
    if (_PREPARED.get() or (None,))[0] == started.root.resolve():  # By the caller of the flow.
        return _submit(product, stages, started.root.resolve())
    if run_directory and not settings_file and not given and started.manifest.exists():
        settings = settings_of_run(product.settings, started)
    else:
        settings = product.load(settings_file or None, given)
    folder = run_directory or default_run_directory(
        settings, settings_file or settings.privacy.ledger
    )
    run = prepare(settings, folder)
    add_tags(tags_of(settings))
    with server_for_runs(), override_runner(run, settings):
        return _submit(product, stages, run.root)


def _submit(product: Product, stages: Body, root: Path) -> str:
    """Submit the stages of a prepared run to the task runner that its settings choose, show the
    results, and return the release's folder."""
    compile_in_background(product.name)
    with enter_run(str(root), product.settings) as (run, settings):
        # Computed at the first use, before noise is drawn.
        notes = cache(partial(product.words.notes, run, settings))
        warned = warned_of_charge(run, settings, notes)

        def told(stage: str) -> None:
            warned(stage)
            if stage == LEDGER:
                about = "Spending without gain"
                show_notes(notes(), key="redundant-spending", description=about)
                emit_near_cap(run, settings)

        with task_runner(settings.run) as runner:
            Stages(run, settings, runner, ended=told).run(stages)
            show_outcome(run, settings)
            if settings.published_to is not None:
                Stages(run, settings, runner).run(publish)
    return str(run.release)


def _run_name() -> str:
    """Name of a flow run: the flow, and the settings file, the dataset of a form or the folder.

    The folder of a product in a run of several has the product's name; its parent is used instead.
    """
    file, form, root = (
        flow_run.parameters.get(name) for name in ("settings_file", "settings", "run_directory")
    )
    own = form.get("dataset") if isinstance(form, Mapping) else getattr(form, "dataset", None)
    folder = Path(root or "form")
    named = folder.parent if folder.name == flow_run.flow_name else folder
    return f"{flow_run.flow_name}-{Path(file).stem if file else own or named.name}"
