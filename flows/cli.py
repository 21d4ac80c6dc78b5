"""The `spineflow` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tasks.errors import InputRefused, SpineflowError

FLOWS = ("topdown", "detailed-groups", "group-sizes", "trips", "tune", "products")

EPILOG = """\
exit codes: 0 done; 1 something unforeseen; 2 settings or input refused; 3 privacy-loss cap reached
or ledger unusable; 4 an optimisation failed; 5 a check of the result failed, release withheld.

first steps: 'spineflow demo' runs everything on a generated county; then copy the settings file
it prints, point it at your own tables, and use 'spineflow check' and 'spineflow run'.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault(
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if options.debug else "CRITICAL"
    )
    try:
        return options.command(options)
    except KeyboardInterrupt:
        print("spineflow: interrupted", file=sys.stderr)
        return 1
    except SpineflowError as error:
        if options.debug:
            raise
        print(f"spineflow: {str(error).rstrip('.')}.", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if options.debug:
            raise
        print(
            f"spineflow: {type(error).__name__}; run the command again with --debug for the "
            "traceback.",
            file=sys.stderr,
        )
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spineflow",
        description="Release census-like data under differential privacy.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, command, help: str, description: str | None = None):
        sub = commands.add_parser(name, help=help, description=description or help)
        sub.add_argument("--debug", action="store_true", help="show tracebacks and flow logs")
        sub.set_defaults(command=command)
        return sub

    def with_settings(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("flow", choices=FLOWS, metavar="FLOW", help=", ".join(FLOWS))
        sub.add_argument("settings", metavar="SETTINGS.toml", help="settings of the run")
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            dest="overrides",
            metavar="section.key=value",
            help="override one setting; may be given several times",
        )

    demo = add("demo", _demo, "run everything on a generated county of 30,000 persons")
    demo.add_argument(
        "--directory", default="spineflow-demo", help="where to put it (default: %(default)s)"
    )

    run = add(
        "run",
        _run,
        "run a flow",
        "Run a flow. The same command again continues the same run: what is finished is reused, "
        "and noise that has been drawn is never drawn again.",
    )
    with_settings(run)
    run.add_argument(
        "--run-dir",
        metavar="D",
        help="folder of the run (default: runs/ and a name made from the dataset and settings)",
    )

    resume = add("resume", _resume, "continue a run that was interrupted")
    resume.add_argument("run_directory", metavar="RUN_DIR")

    report = add("report", _report, "write the public report of a finished run again")
    report.add_argument("run_directory", metavar="RUN_DIR")

    check = add("check", _check, "validate settings and inputs; draw no noise, spend nothing")
    with_settings(check)

    budget = add(
        "budget", _budget, "show what a run would cost: rho, epsilon, sigma of every query"
    )
    with_settings(budget)
    budget.add_argument("--json", action="store_true", help="print JSON")
    budget.add_argument(
        "--curve", metavar="FILE.svg", help="also draw epsilon against delta into this file"
    )

    ledger = add(
        "ledger",
        _ledger,
        "show what datasets have spent, or set a cap",
        "Show what every dataset has spent, by product, natively and composed as bounded zCDP per "
        "person; or set the cap that its spending must not pass.",
    )
    ledger.add_argument(
        "action", nargs="?", default="show", choices=("show", "set-cap"), help="default: show"
    )
    ledger.add_argument("dataset", nargs="?", help="for set-cap: name of the dataset")
    ledger.add_argument("rho", nargs="?", help="for set-cap: the cap as a fraction, such as 3/2")
    ledger.add_argument(
        "--ledger", default="ledger.db", metavar="FILE", help="ledger file (default: %(default)s)"
    )
    ledger.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _only_topdown(flow: str) -> None:
    if flow != "topdown":
        raise InputRefused(f"The flow {flow} is not in this version; topdown is.")


def _load(options: argparse.Namespace):
    _only_topdown(options.flow)
    from flows.topdown import PRESETS
    from tasks.settings import load_settings
    from tasks.spine.build import check_spine_settings

    settings = load_settings(options.settings, presets=PRESETS, overrides=options.overrides)
    check_spine_settings(settings)
    if settings.run.runner == "dask" and find_spec("prefect_dask") is None:
        raise InputRefused(
            'run.runner = "dask" needs prefect-dask: install spineflow[dask], or choose threads.'
        )
    return settings


def _demo(options: argparse.Namespace) -> int:
    from flows.demo import write_demo

    folder = Path(options.directory)
    settings_file = write_demo(folder)
    print(f"A generated county and its settings are in {folder}/")
    again = f"spineflow run topdown {settings_file} --run-dir {folder / 'run'}"
    print(f"Running: {again}")
    return main(["run", "topdown", str(settings_file), "--run-dir", str(folder / "run")])


def _run(options: argparse.Namespace) -> int:
    settings = _load(options)
    from flows.topdown import default_run_directory

    return _run_and_report(settings, options.run_dir or default_run_directory(settings))


def _resume(options: argparse.Namespace) -> int:
    from tasks.run_directory import RunDirectory
    from tasks.settings import frozen_settings

    run = RunDirectory(Path(options.run_directory).resolve())
    _only_topdown(run.read_manifest()["product"])
    return _run_and_report(frozen_settings(run.settings), run.root)


def _report(options: argparse.Namespace) -> int:
    from tasks.checks.accuracy import read_accuracy
    from tasks.release.report import write_report
    from tasks.run_directory import RunDirectory
    from tasks.settings import frozen_settings
    from tasks.spine.summary import has_summary, write_summary

    run = RunDirectory(Path(options.run_directory).resolve())
    _only_topdown(run.read_manifest()["product"])
    if not run.release.exists():
        raise InputRefused(
            f"{run.root} has no release yet; finish it with 'spineflow resume' first."
        )
    settings = frozen_settings(run.settings)
    with run.locked():
        for universe in settings.run.universes:
            if not has_summary(run, universe):
                write_summary(run, settings, universe)
        accuracy = None if settings.input.confidential else read_accuracy(run)
        print(f"report: {write_report(run, settings, accuracy)}")
    return 0


def _run_and_report(settings, folder: str | Path) -> int:
    from flows.console import finished, shown_progress
    from flows.topdown import prepare, run_stages

    run = prepare(settings, folder)
    with shown_progress():
        run_stages(run, settings)
    finished(run, settings)
    return 0


def _check(options: argparse.Namespace) -> int:
    settings = _load(options)
    from flows.console import print_rules
    from tasks.ingest.run import check_input_of
    from tasks.spine.build import universe_spine

    check = check_input_of(settings)
    with_counts = not settings.input.confidential
    print_rules(check, with_counts=with_counts)
    accepted = check.accepted(with_counts=with_counts)
    for universe in settings.run.universes:
        universe_spine(settings, universe, accepted.geography, accepted.invariants)
    print("The settings and the input are in order.")
    return 0


def _budget(options: argparse.Namespace) -> int:
    settings = _load(options)
    from flows.console import print_budget

    if options.curve is not None:
        from tasks.release.privacy_curve import privacy_curve

        curve = privacy_curve([settings.budget_of(u) for u in settings.run.universes])
        if curve is None:
            raise InputRefused("Without noise there is no curve to draw; leave --curve out.")
        Path(options.curve).write_text(curve.svg, encoding="utf-8")
    print_budget(settings, as_json=options.json)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from flows.console import print_ledger
    from tasks.measurement.ledger import open_ledger, set_cap, summary

    file = Path(options.ledger)
    if not file.exists():
        raise InputRefused(f"{file}: there is no such ledger; name it with --ledger.")
    ledger = open_ledger(file, must_exist=True)
    if options.action == "set-cap":
        if options.dataset is None or options.rho is None:
            raise InputRefused("set-cap needs a dataset and a rho: spineflow ledger set-cap D 3/2.")
        set_cap(ledger, options.dataset, _exact(options.rho))
    print_ledger(summary(ledger), as_json=options.json)
    return 0


def _exact(text: str):
    from fractions import Fraction

    from tasks.settings import LARGEST_LOSS, SMALLEST_LOSS

    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputRefused(f"{text} is not a fraction; write for example 3/2 or 1.5.") from None
    if not SMALLEST_LOSS <= value <= LARGEST_LOSS:
        raise InputRefused("The cap must be a positive fraction, from 1e-12 to 1e12.")
    return value


if __name__ == "__main__":
    sys.exit(main())
