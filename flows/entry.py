"""The flows of a product: of a settings file or a form, and of the stages of a prepared run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from prefect import Flow
from prefect.runtime import flow_run

from ..tasks.products.order import LEDGER, Wave
from ..tasks.products.product import END, Product
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from .events import tell_near_cap
from .form import SettingsForm, Written, form_of
from .order import submitted, with_warnings
from .results import show_notes, show_outcome, show_result, show_table
from .running import default_run_directory, entered, prepare, run_stages, stages_run_name
from .tracking import Tracker

CHARGED_FIRST = (
    "Every draw of noise is charged to the dataset's ledger first; the release appears once every "
    "check has passed."
)

FullPath = Annotated[str, Written("^(/.*)?$", "a full path, such as /data/settings.toml")]
"""A full path, or nothing: a server cannot tell from where a worker would take another."""


def flows_of(product: Product, description: str) -> tuple[Flow[..., str], Flow[[str], str]]:
    """The flow of a product, of settings, and that of the stages of a prepared run."""
    return settings_flow(product, description), stages_flow(product)


def settings_flow(product: Product, description: str) -> Flow[..., str]:
    """The flow of a product, of settings.

    The fields of the product's form and the arguments below are what the UI asks for, and
    `description` is what it says.
    """
    kind = form_of(product.name)
    empty = kind()

    def run(
        settings_file: FullPath = "",
        run_directory: FullPath = "",
        overrides: tuple[str, ...] = (),
        settings: kind = empty,  # type: ignore[valid-type]
    ) -> str:
        """Run a settings file on this machine.

        Args:
            settings_file: Full path of the TOML settings, as the worker sees it; left out, all
                settings are those below.
            run_directory: Full path of the folder of the run; a started run with the same settings
                is continued. Left out, it is named after the dataset and the settings, in runs/
                beside the settings file or, without one, beside the ledger; what has neither needs
                it.
            overrides: Settings that win over the file and the form, each written as
                section.key=value.
            settings: Settings that win over the file; what is left empty is as the file, its preset
                or the default has it.
        """
        return _run_settings(product, settings_file, run_directory, overrides, settings)

    return Flow(
        run,
        name=product.name,
        description=description,
        flow_run_name=_run_name,
        persist_result=False,
    )


def stages_flow(product: Product) -> Flow[[str], str]:
    """The flow of all stages of a prepared run, which submits the product's order of steps.

    Finished artifacts are reused. It returns the release's folder.
    """

    def stages(run_directory: str) -> str:
        with entered(run_directory, product.settings) as (run, settings):
            _submit(product, run, settings)
        return str(run.release)

    return Flow(
        stages,
        name=f"{product.name}-stages",
        description=f"All stages of a prepared run of {product.name}; finished ones are reused.",
        flow_run_name=stages_run_name,
        persist_result=False,
    )


def _submit(product: Product, run: RunDirectory, settings: ProductSettings) -> None:
    """Submit a product's order, and show what it has to show when some stages have ended."""
    if product.order is None:
        raise ValueError(f"{product.name} decides on the way what comes next")
    # Worked out when they are asked for first, before noise is drawn.
    notes = cache(partial(product.notes, run, settings))
    waves: Iterable[Wave] = with_warnings(run, settings, product.order(run, settings), notes)

    def show(wave: Wave) -> None:
        _show(product, run, settings, tuple(wave))

    for wave in submitted(run, waves, Tracker(run, settings.run), show):
        if LEDGER in wave:
            about = "What is about to be spent without gain"
            show_notes(notes(), key="redundant-spending", description=about)
            tell_near_cap(run, settings)
    _show(product, run, settings, END)
    show_outcome(run, settings)


def _show(
    product: Product, run: RunDirectory, settings: ProductSettings, stages: Collection[str]
) -> None:
    for shown in product.shown(run, settings, stages):
        show_table(shown.content, key=shown.key, description=shown.description)


def _run_settings(
    product: Product,
    settings_file: str,
    run_directory: str,
    overrides: Sequence[str],
    form: SettingsForm,
) -> str:
    """Run a settings file, a form, or both, from start to release.

    Without a run directory the run goes where `default_run_directory` says, with the ledger in the
    place of a settings file that there is not.
    """
    settings = product.load(settings_file or None, [*form.overrides(), *overrides])
    folder = run_directory or default_run_directory(
        settings, settings_file or settings.privacy.ledger
    )
    run = prepare(settings, folder)
    released = run_stages(product, run, settings)
    show_result(run, settings)
    return released


def _run_name() -> str:
    """Name of the flow run of a settings file or a form: the flow, and the file or the dataset."""
    file, form = (flow_run.parameters.get(name) for name in ("settings_file", "settings"))
    if file:
        return f"{flow_run.flow_name}-{Path(file).stem}"
    dataset = form.get("dataset") if isinstance(form, Mapping) else getattr(form, "dataset", None)
    return f"{flow_run.flow_name}-{dataset or 'form'}"
