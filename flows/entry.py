"""The flow of a product that deployments call: with a settings file, a form, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prefect import Flow
from prefect.runtime import flow_run

from .form import SettingsForm
from .product import Product
from .results import show_result
from .running import default_run_directory, prepare, run_stages


def settings_flow(
    module: str, name: str, product: Callable[[], Product], form: SettingsForm, description: str
) -> Flow[..., str]:
    """The flow `name` of the product that is defined further down in `module`.

    It stands there under its name, with underscores, as an entry point of deployments. `form` is
    the product's form, empty; its fields and the arguments below are what the UI asks for, and
    `description` is what it says.
    """

    def run(
        settings_file: str = "",
        run_directory: str = "",
        overrides: tuple[str, ...] = (),
        settings: SettingsForm = form,
    ) -> str:
        """Run a settings file on this machine.

        Args:
            settings_file: Full path of the TOML settings, as the worker sees it; left out, all
                settings are those below.
            run_directory: Folder of the run; a started run with the same settings is continued.
                Left out, it is named after the dataset and the settings, in runs/ beside the
                settings file or, without one, beside the ledger; what has neither needs it.
            overrides: Settings that win over the file and the form, each written as
                section.key=value.
            settings: Settings that win over the file; what is left empty is as the file, its preset
                or the default has it.
        """
        return _run_settings(product(), settings_file, run_directory, overrides, settings)

    run.__module__ = module
    run.__name__ = run.__qualname__ = name.replace("-", "_")
    run.__annotations__["settings"] = type(form)
    return Flow(
        run,
        name=name,
        description=description,
        flow_run_name=_run_name,
        persist_result=False,
    )


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
