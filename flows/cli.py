"""The `spineflow` command."""

from __future__ import annotations

import argparse
import atexit
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..tasks.products.registry import later, product
from ..tasks.runs.errors import InputRefused, SpineflowError
from . import forking
from .arguments import HOUSEHOLDS, parser
from .interruption import answered
from .log_lines import JSON, TEXT, as_json_lines, drop_output, logged, say
from .registry import MODULES

if TYPE_CHECKING:
    from ..tasks.runs.directory import RunDirectory
    from ..tasks.topdown.settings import TopdownSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Without arguments the command is what the process is
    for, and the process ends with it."""
    if arguments is None:  # Nobody else has put anything in the process.
        forking.allow()
    options = parser(COMMANDS).parse_args(arguments)
    _quieten("INFO" if options.debug else "CRITICAL")
    if options.command is _serve:  # Prefect ends it, and the runs that it has begun.
        return _ended(options)
    with logged(getattr(options, "log", TEXT)):
        code = _with_room(lambda: answered(lambda: _ended(options)))
    return code if arguments is not None else _end(code)


def _with_room(call: Callable[[], int]) -> int:
    """Call a function with half a MiB of room for the frames of all that it calls, here and in
    forks of this process.

    Python asks the system for the memory of frames 16 KiB at a time, and gives that back with the
    first frame in it: where a loop calls from the end of one, as deep imports do, at every turn. To
    this frame more belongs.
    """
    return call()


_with_room.__code__ = _with_room.__code__.replace(co_stacksize=1 << 16)


def _end(code: int) -> NoReturn:
    """End the process as Python does, but for taking down all that it holds in memory, object by
    object: after a run that is half of the time from its last word to the prompt."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # It may be closed, or none.
            stream.flush()
    os._exit(code)


def _ended(options: argparse.Namespace) -> int:
    """The exit code of a command, whose errors are told in a sentence."""
    try:
        code = options.command(options) or 0
        if sys.stdout is not None:  # Who starts a command may have closed it.
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        drop_output(sys.stdout)
        return 1
    except SpineflowError as error:
        if options.debug:
            raise
        say(f"spineflow: {str(error).rstrip('.')}.")
        return error.exit_code
    except Exception as error:
        if options.debug:
            raise
        say(
            f"spineflow: {type(error).__name__}; run the command again with --debug for the "
            "traceback."
        )
        return 1


FOLDERS = ("RUN_DIR", "D", "FOLDER", "DIRECTORY", "DIR")
FILES = ("SETTINGS.toml", "FILE")
"""Arguments that a shell completes with names of folders and of files."""

SEMAPHORES = "ignore::UserWarning:multiprocessing.resource_tracker"
"""A filter for Python's tracker of semaphores, a process that outlives an interrupted command: it
would warn, after the command's last sentence, of the tasks that it clears up."""


def _quieten(level: str) -> None:
    """Keep off the console what libraries log below a level, and that they could not log it."""
    if SEMAPHORES not in sys.warnoptions:
        sys.warnoptions.append(SEMAPHORES)
    for handler in ("CONSOLE", "DEBUG"):
        os.environ.setdefault(f"PREFECT_LOGGING_HANDLERS_{handler}_LEVEL", level)
    if logging.lastResort is not None:
        logging.lastResort.setLevel(level)
    logging.raiseExceptions = level != "CRITICAL"


def _demo(options: argparse.Namespace) -> int:
    from ..tasks.ledger.summary import summary
    from .console import print_ledger
    from .demo import DEMO_COUNTRY, DEMO_HOUSEHOLDS, GENERATED, write_demo
    from .ledger import WrittenCaps, init_ledger

    if options.country and options.flow != "topdown":
        raise InputRefused(
            f"--country is a demonstration of topdown; leave it out of {options.flow}."
        )
    further = {HOUSEHOLDS: DEMO_HOUSEHOLDS}
    demo = DEMO_COUNTRY if options.country else (GENERATED | further)[options.flow]
    folder = Path(options.directory or demo.folder)
    settings_file = write_demo(demo, folder)
    ledger = folder / "ledger.db"
    if demo.spends and not ledger.exists():
        # Nobody lives in it: it does not belong in the list of this machine's ledgers.
        made = init_ledger(ledger, WrittenCaps(rho=[demo.cap]), is_listed=False)
        print_ledger(summary(made), as_json=False)
    print(f"A generated {demo.what} and its settings are in {folder}/")
    again = f"spineflow run {demo.flow} {settings_file} --run-dir {folder / 'run'}"
    print(f"Running: {again}")
    return main(["run", demo.flow, str(settings_file), "--run-dir", str(folder / "run")])


@contextmanager
def _importing() -> Iterator[None]:
    """In the block, which imports what a run needs, no garbage is looked for until
    `run_and_report` has it: what is imported stays, and to look through it takes a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_importing()
def _run(options: argparse.Namespace) -> None:
    from .servers import server_for_runs

    with server_for_runs() as server:
        # It comes up while the flow is imported.
        server.begin()
        asked = product(options.flow)
        settings = asked.load(options.settings, options.overrides)
        from .foreground import run_and_report
        from .running import default_run_directory

        folder = options.run_dir or default_run_directory(settings, options.settings)
        run_and_report(asked, settings, folder, server)


@_importing()
def _resume(options: argparse.Namespace) -> None:
    from ..tasks.products.product import refuse_missing_runner
    from ..tasks.runs.settings_files import with_runner_overrides
    from .existing import existing_run
    from .foreground import run_and_report
    from .servers import server_for_runs

    run, asked, frozen = existing_run(options.run_directory)
    settings = with_runner_overrides(frozen, options.overrides)
    refuse_missing_runner(settings.run)
    with server_for_runs() as server:
        run_and_report(asked, settings, run.root, server)


def _report(options: argparse.Namespace) -> None:
    from .existing import existing_run
    from .reports import write_comparison, write_expected_errors, write_report

    existing = [existing_run(folder) for folder in options.run_directories]
    for run, asked, settings in existing if options.expected else ():
        print(f"expected errors: {write_expected_errors(run, asked, settings, options.expected)}")
    if len(existing) > 1:
        print(f"comparison: {write_comparison(existing)}")
    else:
        print(f"report: {write_report(*existing[0])}")


def _topdown_run(options: argparse.Namespace, what: str) -> tuple[RunDirectory, TopdownSettings]:
    """An unaltered run of topdown, and its settings; raises InputRefused for another, which has
    none of `what` is asked for.
    """
    from ..tasks.runs.charged_files import refuse_altered
    from ..tasks.topdown.settings import TopdownSettings
    from .existing import existing_run

    run, _, settings = existing_run(options.run_directory)
    if not isinstance(settings, TopdownSettings):
        raise InputRefused(f"{run.root} is no run of topdown; only those have {what}.")
    refuse_altered(run)
    return run, settings


def _intervals(options: argparse.Namespace) -> None:
    from ..tasks.topdown.intervals.report import write_run_intervals
    from .console import shown_work

    run, settings = _topdown_run(options, "intervals")
    with shown_work() as listener:
        found = [
            written.sentence()
            for written in write_run_intervals(
                run,
                settings,
                options.queries,
                universe=options.universe,
                geolevel=options.geolevel,
                entities=options.entities,
                share_of=options.share_of,
                compare=options.compare,
                level=options.level,
                out=options.out,
                listener=listener,
            )
        ]
    print(*found, sep="\n")


def _measurements(options: argparse.Namespace) -> None:
    from ..tasks.topdown.published.export import export_measurements

    run, settings = _topdown_run(options, "such measurements")
    for path in export_measurements(run, settings, Path(options.directory)):
        print(path)


def _check(options: argparse.Namespace) -> None:
    from ..validation.expectations import by_the_rules_alone
    from .console import check_input

    asked = product(options.flow)
    with by_the_rules_alone():
        check_input(asked, asked.load(options.settings, options.overrides))
    print("The settings and the input are in order.")


def _ledger(options: argparse.Namespace) -> None:
    from ..tasks.ledger.listed import forget_ledger, listed_ledgers
    from ..tasks.ledger.store import open_ledger, refuse_unreachable
    from ..tasks.ledger.summary import summary
    from .console import print_ledger
    from .ledger import WrittenCaps, init_ledger, join_ledgers, move_run, set_written_caps

    if options.action == "move":
        if options.name is None:
            raise InputRefused("move needs the folder of a run: spineflow ledger move RUN_DIR.")
        print(f"the run goes on in {move_run(Path(options.name))}, and nowhere else")
        return
    if options.action == "list":
        for path in listed_ledgers():
            print(path if path.exists() else f"{path} is missing")
        return
    if options.action == "forget":
        if options.name is None:
            raise InputRefused("forget needs a ledger: spineflow ledger forget OTHER.db.")
        forget_ledger(Path(options.name).absolute())
        return
    file = Path(options.ledger)
    refuse_unreachable(file)
    caps = WrittenCaps(options.cap, options.delta_cap, options.epsilon_cap, options.planned)
    if options.action == "init":
        ledger = init_ledger(file, caps)
    elif not file.exists():
        raise InputRefused(
            f"{file}: there is no such ledger; name it with --ledger, or make it with "
            "'spineflow ledger init'."
        )
    elif options.action == "join":
        if options.name is None:
            raise InputRefused("join needs another ledger: spineflow ledger join OTHER.db.")
        ledger = join_ledgers(file, Path(options.name))
    else:
        ledger = open_ledger(file, must_exist=True)
    if options.action == "set-cap":
        set_written_caps(ledger, options.name, options.rho, caps)
    is_exact = options.action == "show"
    print_ledger(summary(ledger, is_exact=is_exact), as_json=options.json)


def _serve(options: argparse.Namespace) -> None:
    from .deployments import serve

    if options.log == JSON:
        as_json_lines()
    serve(options.flows)


def _deploy(options: argparse.Namespace) -> None:
    from .deployments import deploy

    for name in deploy(options.flows, options.pool):
        print(f"registered {name}")
    print(f"Start a worker with: prefect worker start --pool {options.pool}")


def _completion(options: argparse.Namespace) -> None:
    """Print a script with which Tab completes commands, flows, options, files and folders."""
    import shtab

    commands = parser(COMMANDS)
    (named,) = (found.choices for found in commands._actions if isinstance(found.choices, dict))
    for sub in named.values():
        for action in sub._actions:
            if action.metavar == "FLOW":
                # argparse itself would refuse a list of none.
                action.choices = tuple(MODULES) if action.choices is None else action.choices
            if action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY
            elif action.metavar in FILES:
                action.complete = shtab.FILE
    print(shtab.complete(commands, options.shell))


COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "demo": _demo,
    "from-pl94171": later("flows.published:write_published_input"),
    "run": _run,
    "resume": _resume,
    "report": _report,
    "replicates": later("flows.replicates:write_replicates"),
    "intervals": _intervals,
    "measurements": _measurements,
    "check": _check,
    "budget": later("flows.budgets:show_budget"),
    "design": later("flows.designs:write_design"),
    "spine": later("flows.spines:show_spine"),
    "ledger": _ledger,
    "serve": _serve,
    "deploy": _deploy,
    "completion": _completion,
    "compile": later("flows.kernels:announce_and_compile"),
}
"""What each command does with its arguments; returns the exit code, if it is not 0."""


if __name__ == "__main__":
    sys.exit(main())
