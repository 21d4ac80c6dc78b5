"""The flow of a product: of a settings file, a form, or a run that was begun."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from prefect import Flow
from prefect.runtime import flow_run
from pydantic import Field

from ..tasks.products.product import Product
from ..tasks.runs.directory import LEDGER, RunDirectory
from ..tasks.runs.settings_files import settings_of_run
from .endings import add_tags, emit_near_cap
from .form import SettingsForm, form_of, text
from .kernels import compile_in_background
from .results import show_notes, show_outcome
from .runners import task_runner
from .running import (
    default_run_directory,
    enter_run,
    is_in_force,
    override_runner,
    prepare,
    publish,
    tags_of,
    warned_of_charge,
)
from .servers import server_for_runs
from .stages import Body, Stages

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
        root = Path(run_directory).resolve()
        if is_in_force(root):
            return _submit(product, stages, root)
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
