"""The `spineflow` command."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import shtab

from ..tasks.ledger.listed import forget_ledger, listed_ledgers
from ..tasks.ledger.store import open_ledger, refuse_unreachable
from ..tasks.ledger.summary import summary
from ..tasks.products.new_charge import new_charge
from ..tasks.products.product import refuse_missing_runner
from ..tasks.products.registry import product
from ..tasks.runs.charged_files import refuse_altered
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused, SpineflowError
from ..tasks.runs.settings_files import with_resume_overrides
from ..tasks.topdown.settings import TopdownSettings
from ..validation.expectations import by_the_rules_alone
from .arguments import HOUSEHOLDS, parser
from .budgets import show_budget
from .console import check_input, open_in_browser, print_block, print_ledger, shown_work
from .existing import existing_run
from .interruption import answered
from .kernels import announce_and_compile
from .ledger import WrittenCaps, init_ledger, join_ledgers, move_run, set_written_caps
from .logs import JSON, LOGGER, TEXT, as_json_lines, drop_output, logged
from .registry import MODULES
from .reports import write_comparison, write_expected_errors, write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parser(COMMANDS).parse_args(arguments)
    _quieten("INFO" if options.debug else "CRITICAL")
    with logged(getattr(options, "log", TEXT)):
        if options.command is _serve:  # Prefect ends it, and the runs that it has begun.
            return _ended(options)
        return answered(lambda: _ended(options))


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
        LOGGER.error("%s.", str(error).rstrip("."))
        return error.exit_code
    except Exception as error:
        if options.debug:
            raise
        name = type(error).__name__
        LOGGER.error("%s; run the command again with --debug for the traceback.", name)
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
    from .demo import DEMO_COUNTRY, DEMO_HOUSEHOLDS, GENERATED, write_demo  # 0.7 s

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
    code = main(["run", demo.flow, str(settings_file), "--run-dir", str(folder / "run")])
    if options.open and code == 0:
        open_in_browser(RunDirectory(folder / "run").report)
    return code


def _run(options: argparse.Namespace) -> None:
    from .servers import server_for_runs  # 0.8 s

    with server_for_runs() as server:
        # It comes up while the flow is imported.
        server.begin()
        asked = product(options.flow)
        settings = asked.load(options.settings, options.overrides)
        from .foreground import run_and_report  # 1.3 s, while the server comes up
        from .running import default_run_directory

        folder = options.run_dir or default_run_directory(settings, options.settings)
        run_and_report(asked, settings, folder, server)


def _resume(options: argparse.Namespace) -> None:
    from .foreground import run_and_report  # 1.3 s
    from .servers import server_for_runs

    run, asked, frozen = existing_run(options.run_directory)
    settings = with_resume_overrides(frozen, options.overrides)
    refuse_missing_runner(settings.run)
    with server_for_runs() as server:
        run_and_report(asked, settings, run.root, server)


def _report(options: argparse.Namespace) -> None:
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
    run, _, settings = existing_run(options.run_directory)
    if not isinstance(settings, TopdownSettings):
        raise InputRefused(f"{run.root} is no run of topdown; only those have {what}.")
    refuse_altered(run)
    return run, settings


def _intervals(options: argparse.Namespace) -> None:
    from ..tasks.topdown.intervals.report import write_run_intervals  # 1.0 s

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
    from ..tasks.topdown.published.export import export_measurements  # 0.8 s

    run, settings = _topdown_run(options, "such measurements")
    for path in export_measurements(run, settings, Path(options.directory)):
        print(path)


def _check(options: argparse.Namespace) -> None:
    asked = product(options.flow)
    settings = asked.load(options.settings, options.overrides)
    with by_the_rules_alone():
        check_input(asked, settings)
    for sentence in new_charge(asked, settings):
        print_block(sentence)
    print("The settings and the input are in order.")


def _ledger(options: argparse.Namespace) -> None:
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


def _from_pl94171(options: argparse.Namespace) -> None:
    from .published import write_published_input  # 0.7 s

    write_published_input(options)


def _replicates(options: argparse.Namespace) -> None:
    from .replicates import write_replicates  # 1.7 s

    write_replicates(options)


def _design(options: argparse.Namespace) -> None:
    from .designs import write_design  # 1.8 s

    write_design(options)


def _spine(options: argparse.Namespace) -> None:
    from .spines import show_spine  # 0.9 s

    show_spine(options)


def _serve(options: argparse.Namespace) -> None:
    from .deployments import serve  # 1.1 s

    if options.log == JSON:
        as_json_lines()
    serve(options.flows)


def _deploy(options: argparse.Namespace) -> None:
    from .deployments import deploy  # 1.1 s

    for name in deploy(options.flows, options.pool):
        print(f"registered {name}")
    print(f"Start a worker with: prefect worker start --pool {options.pool}")


def _completion(options: argparse.Namespace) -> None:
    """Print a script with which Tab completes commands, flows, options, files and folders."""
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


# What a command imports late takes the seconds of processor time beside it.
COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "demo": _demo,
    "from-pl94171": _from_pl94171,
    "run": _run,
    "resume": _resume,
    "report": _report,
    "replicates": _replicates,
    "intervals": _intervals,
    "measurements": _measurements,
    "check": _check,
    "budget": show_budget,
    "design": _design,
    "spine": _spine,
    "ledger": _ledger,
    "serve": _serve,
    "deploy": _deploy,
    "completion": _completion,
    "compile": announce_and_compile,
}
"""What each command does with its arguments; returns the exit code, if it is not 0."""


if __name__ == "__main__":
    sys.exit(main())
