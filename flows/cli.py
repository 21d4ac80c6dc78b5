"""The `spineflow` command."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path

from spineflow.flows.registry import DEMOS, MODULES, REPLICATED, product
from spineflow.flows.simulation import add_simulate
from spineflow.tasks.runs.errors import InputRefused, SpineflowError

EPILOG = """\
flows: topdown, microdata and redistricting tables; estimate, the same from published noisy
measurements alone; detailed-groups, tables for detailed race and ethnicity groups; group-sizes,
households of every size by region; trips, origin/destination tables and other trees; products,
several of these on one dataset; tune, budgets tried on public data.

exit codes: 0 done; 1 something unforeseen; 2 settings or input refused; 3 privacy-loss cap reached
or ledger unusable; 4 an optimisation failed; 5 a check of the result failed, release withheld.

first steps: 'spineflow demo' runs everything on a generated county; then copy the settings file
it prints, point it at your own tables, make a ledger with caps ('spineflow ledger init --cap 3'),
and use 'spineflow check' and 'spineflow run'.
"""

RUN_DIR = (
    "folder of a run: the --run-dir of 'spineflow run', or the folder it made in runs/ beside the "
    "settings file"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args(arguments)
    _quieten("INFO" if options.debug else "CRITICAL")
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


def _quieten(level: str) -> None:
    """Keep off the console what libraries log below a level, and that they could not log it."""
    for handler in ("CONSOLE", "DEBUG"):
        os.environ.setdefault(f"PREFECT_LOGGING_HANDLERS_{handler}_LEVEL", level)
    if logging.lastResort is not None:
        logging.lastResort.setLevel(level)
    logging.raiseExceptions = level != "CRITICAL"


def parser() -> argparse.ArgumentParser:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(
        prog="spineflow",
        description="Release census-like data under differential privacy.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('spineflow')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str,
        command: Callable[[argparse.Namespace], int],
        help: str,
        description: str | None = None,
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=description or help)
        sub.add_argument("--debug", action="store_true", help="show tracebacks and flow logs")
        sub.set_defaults(command=command)
        return sub

    def with_overrides(sub: argparse.ArgumentParser, help: str) -> None:
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            dest="overrides",
            metavar="section.key=value",
            help=f"{help}; may be given several times",
        )

    def with_settings(
        sub: argparse.ArgumentParser, flows: Collection[str] = tuple(MODULES)
    ) -> None:
        sub.add_argument("flow", choices=flows, metavar="FLOW", help=", ".join(flows))
        sub.add_argument("settings", metavar="SETTINGS.toml", help="settings of the run")
        with_overrides(sub, "override one setting")

    demo = add(
        "demo",
        _demo,
        "run everything on generated input",
        "Generate input for a flow, write settings and a ledger beside it, and run them. "
        "'spineflow demo' alone generates a county of 30,000 persons and runs topdown.",
    )
    demo.add_argument(
        "flow",
        choices=DEMOS,
        default="topdown",
        metavar="FLOW",
        nargs="?",
        help=f"{', '.join(DEMOS)} (default: %(default)s)",
    )
    demo.add_argument(
        "--directory", help="where to put it (default: spineflow-demo, or spineflow-FLOW)"
    )
    demo.add_argument(
        "--country",
        action="store_true",
        help="a generated country abroad instead, declared in its settings file",
    )

    published = add(
        "from-pl94171",
        _from_pl94171,
        "turn a published P.L. 94-171 release into input tables for experiments",
        "Read the geographic header and the three segments of a state's published redistricting "
        "files, and write fictional records that tabulate to their block counts, with settings.",
    )
    published.add_argument("release", metavar="FOLDER", help="folder with the state's .pl files")
    published.add_argument("directory", metavar="DIRECTORY", help="where to put the tables")

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
        help="folder of the run (default: runs/ beside the settings file, and there a name made "
        "from the dataset and the settings)",
    )

    resume = add(
        "resume",
        _resume,
        "continue a run that was interrupted",
        "Continue a run with the settings that it began with. What runs its tasks may change, "
        "since the release does not depend on it: --set run.workers=1, run.runner=threads or "
        "run.dask_address=tcp://host:8786.",
    )
    resume.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    with_overrides(resume, "change run.runner, run.workers or run.dask_address")

    report = add(
        "report",
        _report,
        "write the reports of a finished run again, or compare several runs",
        "Write the public report of a finished run again, and its confidential accuracy report. "
        "Several runs are compared with the truth side by side, in the first one's confidential "
        "folder, and in its report folder too if no input is confidential.",
    )
    report.add_argument("run_directories", metavar="RUN_DIR", nargs="+", help=RUN_DIR)
    expected = "also simulate N releases from the release: errors to be expected, for the public"
    report.add_argument("--expected", type=int, default=0, metavar="N", help=expected)

    add_simulate(add, RUN_DIR)

    replicates = add(
        "replicates",
        _replicates,
        "run again and again on data that may be disclosed: mean errors, and true counts",
        "Measure and estimate several times with different noise, on input that is not "
        "confidential, and write the mean errors of the replicates. For detailed-groups the true "
        "counts are written too, in the layout of the production program's target counts.",
    )
    with_settings(replicates, REPLICATED)
    replicates.add_argument(
        "--replicates", type=int, default=10, metavar="N", help="how many (default: %(default)s)"
    )
    replicates.add_argument(
        "--out", default="replicates", metavar="FOLDER", help="where to (default: %(default)s)"
    )

    intervals = add(
        "intervals",
        _intervals,
        "confidence intervals from a topdown run's noisy measurements",
        "Best linear unbiased estimates from all noisy measurements of a topdown run, with exact "
        "standard deviations and intervals, for every geounit of its geolevels or for areas that "
        "are lists of blocks. Reads nothing confidential, and spends nothing.",
    )
    intervals.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    intervals.add_argument(
        "--query",
        action="append",
        required=True,
        dest="queries",
        metavar="Q",
        help="a marginal query such as total or 'sex * age'; may be given several times",
    )
    intervals.add_argument("--universe", help="default: the first of the run")
    where = intervals.add_mutually_exclusive_group()
    where.add_argument("--geolevel", metavar="L", help="one geolevel; default: all of the spine")
    where.add_argument(
        "--entities",
        metavar="FILE",
        help="areas off the spine: CSV or Parquet with the columns area and block (16 digits)",
    )
    intervals.add_argument(
        "--share-of",
        metavar="Q",
        help="also the share that each answer has of the one of this query that it is a part of",
    )
    intervals.add_argument(
        "--compare",
        metavar="FILE",
        help="differences and ratios of pairs instead: CSV or Parquet with the columns first and "
        "second, geocodes of --geolevel or areas of --entities",
    )
    intervals.add_argument(
        "--level", type=float, default=0.9, help="probability to hold the truth (%(default)s)"
    )
    intervals.add_argument(
        "--out", metavar="FILE", help="Parquet or .csv; default: in the run's intervals/"
    )

    measurements = add(
        "measurements",
        _measurements,
        "write a topdown run's noisy measurements in the published layout",
        "Write the noisy measurements and constraints of a topdown run as the U.S. Census Bureau "
        "has published its own, with the state totals and what was asked beside them. 'spineflow "
        "run estimate' reads them. Nothing confidential is read, and nothing spent.",
    )
    measurements.add_argument("action", choices=("export",), help="export")
    measurements.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    measurements.add_argument("directory", metavar="DIR", help="a new folder")

    check = add("check", _check, "validate settings and inputs; draw no noise, spend nothing")
    with_settings(check)

    budget = add(
        "budget", _budget, "show what a run would cost: rho, epsilon, sigma of every query"
    )
    with_settings(budget)
    budget.add_argument("--json", action="store_true", help="print JSON")
    budget.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="WHAT=MARGIN",
        help="say which budget the 95 %% margin of error of an answer needs, for example "
        "persons:County:total=25 of topdown, TRACT:2=11 of detailed-groups, county=40 of "
        "group-sizes, 8=30 (a level) of trips, or one of these after PRODUCT: of products; "
        "several levels of group-sizes or trips also get the best split among them",
    )
    budget.add_argument(
        "--curve", metavar="FILE.svg", help="also draw epsilon against delta into this file"
    )
    budget.add_argument(
        "--forecast", metavar="FILE.html", help="also write what topdown's estimates will be like"
    )
    budget.add_argument(
        "--replicates", type=int, default=0, metavar="N", help="simulate releases for the forecast"
    )

    design = add(
        "design",
        _design,
        "find the best split of a budget, with proof that none is much better",
        "Find the split over geolevels and queries of topdown, or over levels of group-sizes or "
        "trips, whose margins of the targets in [design] are smallest, or the smallest budget that "
        "meets them, and write settings with it. "
        "Reads geography and declared invariants, nothing confidential, and spends nothing.",
    )
    with_settings(design, ("topdown", "group-sizes", "trips"))
    design.add_argument(
        "--out", metavar="FILE", help="settings to write (default: SETTINGS-designed.toml)"
    )
    design.add_argument("--json", action="store_true", help="print JSON")

    ledger = add(
        "ledger",
        _ledger,
        "make a ledger, show what datasets have spent, or set caps",
        "Show what every dataset has spent, by product, natively and composed as bounded zCDP per "
        "person. 'init' makes a ledger, with caps that no spending may pass; 'set-cap' sets those "
        "of a dataset; 'move' says that a run goes on in a folder that was copied, restored or "
        "moved to another disk, and nowhere else.",
    )
    ledger.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=("show", "init", "set-cap", "move"),
        help="default: show",
    )
    ledger.add_argument(
        "name", nargs="?", metavar="DATASET", help="for set-cap; for move: the folder of the run"
    )
    ledger.add_argument("rho", nargs="?", help="for set-cap: the cap as a fraction, such as 3/2")
    for option, what in (
        ("--cap", "rho of bounded zCDP per person"),
        ("--delta-cap", "the sum of the deltas"),
    ):
        ledger.add_argument(
            option,
            action="append",
            default=[],
            metavar="[DATASET=]CAP",
            help=f"for init and set-cap: cap of {what}, of one dataset or of each without its own",
        )
    ledger.add_argument(
        "--ledger", default="ledger.db", metavar="FILE", help="ledger file (default: %(default)s)"
    )
    ledger.add_argument("--json", action="store_true", help="print JSON")

    serve = add(
        "serve",
        _serve,
        "register the flows with a Prefect server and run them from this machine",
        "Register the flows with the Prefect server at PREFECT_API_URL, and run what is started "
        "from its UI on this machine until interrupted.",
    )
    deploy = add(
        "deploy",
        _deploy,
        "register the flows with a Prefect server, for the workers of a work pool",
        "Register the flows with the Prefect server at PREFECT_API_URL. Workers of the pool run "
        "them: prefect worker start --pool POOL.",
    )
    deploy.add_argument(
        "--pool",
        default="spineflow",
        help="work pool; made, of type process, if it is missing (default: %(default)s)",
    )
    completion = add(
        "completion",
        _completion,
        "print what completes commands in a shell",
        "Print a script for a shell, with which the Tab key completes commands, flows and options. "
        "For bash: spineflow completion bash > "
        "~/.local/share/bash-completion/completions/spineflow. For zsh, into a folder of $fpath: "
        "spineflow completion zsh > ~/.zfunc/_spineflow.",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="SHELL")
    compiling = add("compile", _compile, "Compile the kernels of long runs, once per installation.")
    compiling.add_argument("--processes", type=int, help="how many at once (default: processors)")
    for sub in (serve, deploy):
        sub.add_argument(
            "flows",
            nargs="*",
            metavar="FLOW",
            help=f"flows to register (default: all of {', '.join(MODULES)})",
        )
    return parser


def _demo(options: argparse.Namespace) -> int:
    from spineflow.flows.demo import DEMO_CAP, DEMO_COUNTRY, GENERATED, write_demo

    if options.country and options.flow != "topdown":
        raise InputRefused(
            f"--country is a demonstration of topdown; leave it out of {options.flow}."
        )
    demo = DEMO_COUNTRY if options.country else GENERATED[options.flow]
    folder = Path(options.directory or demo.folder)
    settings_file = write_demo(demo, folder)
    ledger = folder / "ledger.db"
    if demo.spends and not ledger.exists():
        main(["ledger", "init", "--ledger", str(ledger), "--cap", DEMO_CAP])
    print(f"A generated {demo.what} and its settings are in {folder}/")
    again = f"spineflow run {demo.flow} {settings_file} --run-dir {folder / 'run'}"
    print(f"Running: {again}")
    return main(["run", demo.flow, str(settings_file), "--run-dir", str(folder / "run")])


def _from_pl94171(options: argparse.Namespace) -> int:
    from spineflow.flows.published import write_published_input

    write_published_input(Path(options.release), Path(options.directory))
    return 0


def _run(options: argparse.Namespace) -> int:
    from spineflow.flows.servers import server_for_runs

    with server_for_runs() as server:
        # It comes up while the flow is imported.
        server.begin()
        asked = product(options.flow)
        settings = asked.load(options.settings, options.overrides)
        from spineflow.flows.foreground import run_and_report
        from spineflow.flows.running import default_run_directory

        folder = options.run_dir or default_run_directory(settings, options.settings)
        return run_and_report(asked, settings, folder, server)


def _resume(options: argparse.Namespace) -> int:
    from spineflow.flows.foreground import existing_run, run_and_report
    from spineflow.flows.running import refuse_missing_runner
    from spineflow.flows.servers import server_for_runs
    from spineflow.tasks.runs.settings_files import with_runner_overrides

    run, asked, frozen = existing_run(options.run_directory)
    settings = with_runner_overrides(frozen, options.overrides)
    refuse_missing_runner(settings.run)
    with server_for_runs() as server:
        return run_and_report(asked, settings, run.root, server)


def _report(options: argparse.Namespace) -> int:
    from spineflow.flows.foreground import existing_run
    from spineflow.flows.reports import write_comparison, write_expected_errors, write_report

    existing = [existing_run(folder) for folder in options.run_directories]
    for run, asked, settings in existing if options.expected else ():
        print(f"expected errors: {write_expected_errors(run, asked, settings, options.expected)}")
    if len(existing) > 1:
        print(f"comparison: {write_comparison(existing)}")
    else:
        print(f"report: {write_report(*existing[0])}")
    return 0


def _replicates(options: argparse.Namespace) -> int:
    from spineflow.flows.replicates import write_replicates

    asked = product(options.flow)
    settings = asked.load(options.settings, options.overrides)
    for path in write_replicates(asked, settings, options.replicates, Path(options.out)):
        print(f"written: {path}")
    return 0


def _intervals(options: argparse.Namespace) -> int:
    from spineflow.flows.foreground import existing_run
    from spineflow.tasks.runs.conditions import refuse_altered
    from spineflow.tasks.topdown.intervals.report import write_run_intervals
    from spineflow.tasks.topdown.settings import TopdownSettings

    run, _, settings = existing_run(options.run_directory)
    if not isinstance(settings, TopdownSettings):
        raise InputRefused(f"{run.root} is no run of topdown; only those have intervals.")
    run.refuse_edited_settings()
    refuse_altered(run)
    for path, rows in write_run_intervals(
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
    ):
        print(f"{path}: {rows:,} intervals")
    return 0


def _measurements(options: argparse.Namespace) -> int:
    from spineflow.flows.foreground import existing_run
    from spineflow.tasks.runs.conditions import refuse_altered
    from spineflow.tasks.topdown.published.export import export_measurements
    from spineflow.tasks.topdown.settings import TopdownSettings

    run, _, settings = existing_run(options.run_directory)
    if not isinstance(settings, TopdownSettings):
        raise InputRefused(f"{run.root} is no run of topdown; only those have such measurements.")
    run.refuse_edited_settings()
    refuse_altered(run)
    for path in export_measurements(run, settings, Path(options.directory)):
        print(path)
    return 0


def _check(options: argparse.Namespace) -> int:
    asked = product(options.flow)
    asked.check(asked.load(options.settings, options.overrides))
    print("The settings and the input are in order.")
    return 0


def _budget(options: argparse.Namespace) -> int:
    from spineflow.flows.budgets import show_budget

    asked = product(options.flow)
    show_budget(asked, asked.load(options.settings, options.overrides), options)
    return 0


def _design(options: argparse.Namespace) -> int:
    from spineflow.flows.designs import write_design

    out = None if options.out is None else Path(options.out)
    write_design(options.flow, Path(options.settings), options.overrides, out, as_json=options.json)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from spineflow.flows.console import print_ledger
    from spineflow.flows.ledger import init_ledger, move_run, set_caps
    from spineflow.tasks.ledger.store import open_ledger
    from spineflow.tasks.ledger.summary import summary

    if options.action == "move":
        if options.name is None:
            raise InputRefused("move needs the folder of a run: spineflow ledger move RUN_DIR.")
        print(f"the run goes on in {move_run(Path(options.name))}, and nowhere else")
        return 0
    file = Path(options.ledger)
    if options.action == "init":
        ledger = init_ledger(file, options.cap, options.delta_cap)
    elif not file.exists():
        raise InputRefused(
            f"{file}: there is no such ledger; name it with --ledger, or make it with "
            "'spineflow ledger init'."
        )
    else:
        ledger = open_ledger(file, must_exist=True)
    if options.action == "set-cap":
        set_caps(ledger, options.name, options.rho, options.cap, options.delta_cap)
    print_ledger(summary(ledger), as_json=options.json)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from spineflow.flows.deployments import serve

    serve(options.flows)
    return 0


def _deploy(options: argparse.Namespace) -> int:
    from spineflow.flows.deployments import deploy

    for name in deploy(options.flows, options.pool):
        print(f"registered {name}")
    print(f"Start a worker with: prefect worker start --pool {options.pool}")
    return 0


def _compile(options: argparse.Namespace) -> int:
    from spineflow.flows.kernels import announce_and_compile

    announce_and_compile(options.processes)
    return 0


def _completion(options: argparse.Namespace) -> int:
    from spineflow.flows.completion import completion_script

    print(completion_script(parser(), options.shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
