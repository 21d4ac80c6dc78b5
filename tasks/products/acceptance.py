"""The acceptance of a release: its checks, and the step by which it appears."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ...validation.outcome import Outcome
from ..runs.directory import RunDirectory
from ..runs.errors import CheckFailed, SpineflowError, failure_sentence
from ..runs.files import NOT_PRIVATE, read_record, write_record
from ..runs.handles import Made, created, once, reused
from ..runs.settings import ProductSettings


def accept(
    run: RunDirectory, settings: ProductSettings, outcomes: Sequence[Outcome]
) -> tuple[Outcome, ...]:
    """Write the public outcomes of a run's checks, and return them if all have passed.

    The file has the stamp of a run that is not private, whether every check `passed`, and `checks`:
    name, universe, passed and detail of each. Raises CheckFailed, naming the first check that
    failed; the release is then withheld.
    """
    failed = [outcome for outcome in outcomes if not outcome.passed]
    checks = [
        {"name": own.name, "universe": own.subject, "passed": own.passed, "detail": own.detail}
        for own in outcomes
    ]
    write_record(run.outcomes, {**_stamp(settings), "passed": not failed, "checks": checks})
    if failed:
        first = failed[0]
        raise CheckFailed(
            f"The check '{first.name.replace('_', ' ')}' of {first.subject} failed "
            f"({len(failed)} of {len(outcomes)} did) and the release is withheld: {first.detail}; "
            f"see {run.checks.name}/{run.outcomes.name} in the run directory. The measurements "
            "stay: a version that mends the fault resumes this run without a new charge."
        )
    return tuple(outcomes)


def _stamp(settings: ProductSettings) -> dict[str, str]:
    """The stamp of a record of a run that is not private."""
    return {} if settings.is_private else {"stamp": NOT_PRIVATE}


WARNINGS_FILE = "warnings.json"
"""Public sentences on failures that did not block a release, next to the checks' outcomes."""


def compare_release(
    run: RunDirectory, settings: ProductSettings, compare: Callable[[], object]
) -> bool:
    """Compare a release with the truth, in confidence; returns whether it succeeded.

    A failing comparison does not delay a release whose checks pass: the traceback is written to the
    confidential folder, and a public sentence to `WARNINGS_FILE`, until a comparison succeeds. The
    program's own errors, which name a remedy, and transient errors of storage are raised.
    """
    path = run.checks / WARNINGS_FILE
    try:
        compare()
    except SpineflowError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        sentence = failure_sentence(error, "The comparison with the truth", str(run.root))
        warnings = [f"{sentence} The release does not depend on it."]
        write_record(path, {**_stamp(settings), "warnings": warnings})
        return False
    path.unlink(missing_ok=True)
    return True


def warnings_of(run: RunDirectory) -> tuple[str, ...]:
    """Public sentences on failures in a run that did not block its release."""
    path = run.checks / WARNINGS_FILE
    if not path.exists():
        return ()
    return tuple(read_record(path)["warnings"])


def publish_release(run: RunDirectory, complete: Callable[[], None] = lambda: None) -> Made:
    """Rename the prepared release to its final name in one step, unless it exists already.

    It was checked before, except for figures of data that may be disclosed; `complete` adds the
    last files.
    """
    if run.release.exists():
        return reused(run.release)
    complete()
    os.rename(run.unchecked_release, run.release)
    return created(run.release)


CERTIFICATE = "certificate"


def tabulated_once(
    run: RunDirectory, name: str, tabulate: Callable[..., object], *arguments: object
) -> Made:
    """Reuse the file of a name in the release, checked or not, or `tabulate` it from arguments,
    for the checks to look at.
    """
    folder = run.release if (run.release / name).exists() else run.unchecked_release
    return once(folder / name, tabulate, *arguments)
