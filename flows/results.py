"""A run in the Prefect UI: its progress, and after its end its results in public words and numbers.

Progress goes to the console, too. Browsers follow no link from a server's page to a file, so that
the certificate is shown itself, and files are named by their paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from ..tasks.pages.document import Table
from ..tasks.products.acceptance import CERTIFICATE
from ..tasks.products.product import product
from ..tasks.products.reports import checks_table
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from ..tasks.tables.findings import RULES_FILE
from .endings import NO_ANSWER
from .logs import sentence_of
from .servers import address_of, is_embedded


def key_of(text: str) -> str:
    """`text` as Prefect allows keys of artifacts: lowercase letters a to z, digits and dashes.

    >>> key_of("progress-Personen über 15"), key_of("progress-人")
    ('progress-personen-ber-15', 'progress')
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _show_table(table: Table, *, key: str, description: str) -> None:
    rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    create_table_artifact(rows, key=key, description=description)


def show_notes(sentences: Sequence[str], *, key: str, description: str) -> None:
    """Show sentences as a list; nothing without sentences."""
    if sentences:
        lines = "\n".join(f"- {sentence}." for sentence in sentences)
        create_markdown_artifact(lines, key=key, description=description)


def show_outcome(run: RunDirectory, settings: ProductSettings) -> None:
    """The checks of a finished run, if its product has any, its certificate, and its result in
    words."""
    if run.outcomes.exists():
        about = "Independent checks of the result before its release"
        _show_table(checks_table(run), key="checks", description=about)
    lines = (*filter(None, [settings.stamp]), *product(settings.PRODUCT).outcome(run, settings))
    about = f"{settings.PRODUCT} of {settings.privacy.dataset}"
    create_markdown_artifact("\n\n".join(lines), key="result", description=about)
    file = run.release / f"{CERTIFICATE}.md"
    if file.exists():
        about = "The certificate, which goes with every copy of the release"
        text = file.read_text(encoding="utf-8")
        create_markdown_artifact(text, key="certificate", description=about)


def show_failed_rules(run: RunDirectory) -> None:
    """Names of the rules on the input that were not met; never numbers of rows."""
    file = run.checks / RULES_FILE
    outcomes = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    failed = tuple(
        (outcome["suite"].replace("_", " "), outcome["rule"].replace("_", " "))
        for outcome in outcomes
        if not outcome["passed"]
    )
    if failed:
        about = "Rules on the input; how many rows break them is in confidential/ alone"
        table = Table(("table", "rule that is not met"), failed)
        _show_table(table, key="failed-rules", description=about)


Listener = Callable[[str, int, int], None]
"""Called with the name of a stage, and how many of its tasks are done and planned.

With no tasks planned, the name is a message."""

SECONDS_BETWEEN_UPDATES = 1.0
"""Interval between updates at the server: each is a request, for which the flow waits."""

_listeners: list[Listener] = []
_run_ids: dict[str, str] = {}


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener on every stage's progress while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def begin_run(root: str, flow_run_id: str) -> None:
    """Record the flow run that works on a run directory, and its address for the listeners."""
    _run_ids[root] = flow_run_id
    if not is_embedded():
        _report_progress(f"watch it at {address_of(flow_run_id)}", 0, 0)


def run_id(root: str) -> str | None:
    """The last flow run of this process that worked on a run directory, or None."""
    return _run_ids.get(root)


def _report_progress(stage: str, done: int, planned: int) -> None:
    for listener in _listeners:
        listener(stage, done, planned)


class StageProgress:
    """Progress of the stages of a flow run: to listeners, its log, and an artifact of each stage.

    A command's own server, which is never watched, has no artifacts.
    """

    def __init__(self) -> None:
        self._reported: dict[str, tuple[int, int]] = {}
        self._artifacts: dict[str, UUID] = {}
        self._shown = float("-inf")

    def update(self, stage: str, done: int, planned: int, seconds: float, has_failed: bool) -> None:
        """Report the number of finished tasks of a stage, `seconds` after the first began, unless
        one of them has failed."""
        if has_failed or self._reported.get(stage) == (done, planned):
            return
        self._reported[stage] = (done, planned)
        _report_progress(stage, done, planned)
        has_ended = done == planned
        if has_ended:
            get_run_logger().info(sentence_of(stage, planned, seconds))
        if is_embedded() or not (has_ended or monotonic() - self._shown > SECONDS_BETWEEN_UPDATES):
            return
        # Long tasks outlast an unreachable server.
        with suppress(*NO_ANSWER):
            self._show(stage, 100 * done / planned)
        self._shown = monotonic()

    def _show(self, stage: str, percent: float) -> None:
        if stage in self._artifacts:
            update_progress_artifact(self._artifacts[stage], percent)
        else:
            key = key_of(f"progress-{stage}")
            made = create_progress_artifact(percent, key=key, description=stage)
            # Prefect answers with a coroutine only where an event loop runs.
            self._artifacts[stage] = cast("UUID", made)
