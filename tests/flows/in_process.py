"""Commands without a Prefect server: the same steps in the same order, called as functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import pytest
from prefect.context import SettingsContext, get_settings_context
from prefect.settings import PREFECT_API_URL, Settings
from spineflow.flows import running, servers
from spineflow.validation.outcome import Outcome
from spineflow.validation.rules import Rule, Value

JUDGED_IN = (
    "spineflow.tasks.census.evidence",
    "spineflow.tasks.detailed_groups.ingest.inputs",
    "spineflow.tasks.tables.tally",
)
"""Modules that ask Great Expectations for a second opinion on an input."""


def start_no_server(patched: pytest.MonkeyPatch) -> None:
    """Have commands that are called as functions use the server that is set, or none."""
    patched.setattr(servers, "server_for_runs", lambda: nullcontext(servers.Server("")))


def second_opinion(
    rules: Sequence[Rule], _values: Mapping[str, Mapping[str, Collection[Value]]]
) -> tuple[Outcome, ...]:
    """Stand-in for Great Expectations that finds nothing, so that our own code alone decides."""
    return tuple(Outcome(rule.name, rule.suite, True, rule.statement) for rule in rules)


@contextmanager
def judged_once() -> Iterator[None]:
    """Have our own code alone judge inputs in the block, which are sound: Great Expectations takes
    a tenth of a small run."""
    with pytest.MonkeyPatch.context() as patched:
        for module in JUDGED_IN:
            patched.setattr(f"{module}.run_suites", second_opinion)
        yield


@contextmanager
def uncompared() -> Iterator[None]:
    """Compare no release of topdown with the truth in the block, as if that were gone: where
    nothing is asked of the comparison, which takes a fifth of a small run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "spineflow.tasks.topdown.checks.accuracy.steps.write_run_accuracy", lambda *_: None
        )
        yield


_WITHOUT_SERVER: dict[int, tuple[Settings, Settings]] = {}
"""Settings of Prefect by their identity, and what they are without the address of a server."""


def without_server() -> SettingsContext:
    """The settings of Prefect that hold now, but for the address of a server.

    They are copied once, which takes as long as a stage: `temporary_settings` copies them anew.
    """
    context = get_settings_context()
    key = id(context.settings)
    if key not in _WITHOUT_SERVER:
        bare = context.settings.copy_with_update(restore_defaults={PREFECT_API_URL})
        _WITHOUT_SERVER[key] = (context.settings, bare)
    return SettingsContext(profile=context.profile, settings=_WITHOUT_SERVER[key][1])


@contextmanager
def stages_in_process(*, judged_twice: bool = True) -> Iterator[None]:
    """Have commands run the stages of a product in this process, without a flow run.

    The server of the session, if other tests have set one, is not theirs. Great Expectations may be
    left out where the input is sound.
    """
    with (
        without_server(),
        pytest.MonkeyPatch.context() as patched,
        nullcontext() if judged_twice else judged_once(),
    ):
        start_no_server(patched)
        patched.setattr(running, "run_stages", running.run_stages_here)
        yield
