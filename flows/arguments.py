"""The arguments of the `spineflow` command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from typing import NoReturn

from ..tasks.runs.spelling import did_you_mean
from .log_lines import FORMATS, TEXT
from .registry import DEMOS, MODULES, REPLICATED

EPILOG = """\
flows: topdown, microdata and redistricting tables; estimate, the same from published noisy
measurements alone; detailed-groups, tables for detailed race and ethnicity groups;
detailed-households, households by type and tenure for the same groups; group-sizes, households of
every size by region; supplemental-dhc, people joined with their households; trips,
origin/destination tables and other trees; products, several of these on one dataset; design, the
best split of a budget compared with others on public data; tune, budgets tried on public data;
evidence, other protection methods and attacks beside these on public data.

exit codes: 0 done; 1 something unforeseen; 2 settings or input refused; 3 privacy-loss cap reached
or ledger unusable; 4 an optimisation failed; 5 a check of the result failed, release withheld.

first steps: 'spineflow demo' runs everything on a generated county; then copy the settings file
it prints, point it at your own tables, make a ledger with caps ('spineflow ledger init --cap 3'),
and use 'spineflow check' and 'spineflow run'.
"""

SHELLS = ("bash", "zsh", "tcsh")

RUN_DIR = (
    "folder of a run: the --run-dir of 'spineflow run', or the folder it made in runs/ beside the "
    "settings file"
)


SETTINGS = "settings file of the run"

HOUSEHOLDS = "households"
"""The demonstration of products that count persons and households."""


Add = Callable[..., argparse.ArgumentParser]
"""Adds a command: its name, help and description."""


class _Parser(argparse.ArgumentParser):
    """Refuses a command that is none with what was meant: a flow is named after 'run'."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end with exit code 2."""
        named = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if named is None:
            super().error(message)
        name = named[1]
        if name.replace("_", "-") in MODULES:
            hint = f"it is a flow, which 'spineflow run {name}' runs"
        else:
            hint = "see 'spineflow --help'" + did_you_mean(name, self.commands)
        self.exit(2, f"spineflow: There is no command {name!r}; {hint}.\n")

    commands: Collection[str] = ()


def parser(commands: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """The command line's arguments; `commands` is what each command does, by name."""
    parser = _Parser(
        prog="spineflow",
        description="Release census-like data under differential privacy.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.commands = commands.keys()
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('spineflow')}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, help: str, description: str | None = None) -> argparse.ArgumentParser:
        sub = added.add_parser(name, help=help, description=description or help)
        sub.add_argument("--debug", action="store_true", help="show tracebacks and flow logs")
        sub.set_defaults(command=commands[name])
        return sub

    for add_some in (
        _add_first_steps,
        _add_runs,
        _add_simulate,
        _add_replicates,
        _add_intervals,
        _add_measurements,
        _add_budgets,
        _add_design,
        _add_spine,
        _add_ledger,
        _add_servers,
        _add_installation,
    ):
        add_some(add)
    return parser


def _with_log(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--log",
        choices=FORMATS,
        default=TEXT,
        metavar="FORMAT",
        help="format of what is said on standard error: text, or json, one object a line for the "
        "log of a service (default: %(default)s)",
    )


def _with_overrides(sub: argparse.ArgumentParser, help: str) -> None:
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help=f"{help}; may be given several times",
    )


def _with_settings(sub: argparse.ArgumentParser, flows: Collection[str] = tuple(MODULES)) -> None:
    sub.add_argument("flow", choices=flows, metavar="FLOW", help=f"what to run: {', '.join(flows)}")
    sub.add_argument("settings", metavar="SETTINGS.toml", help=SETTINGS)
    _with_overrides(sub, "override one setting")


def _add_first_steps(add: Add) -> None:
    demo = add(
        "demo",
        "run everything on generated input",
        "Generate input for a flow, write settings and a ledger beside it, and run them. "
        "'spineflow demo' alone generates a county of 30,000 persons and runs topdown.",
    )
    demo.add_argument(
        "flow",
        choices=(*DEMOS, HOUSEHOLDS),
        default="topdown",
        metavar="FLOW",
        nargs="?",
        help=f"what to run: {', '.join(DEMOS)}, or {HOUSEHOLDS}, which is redistricting, housing "
        "units and persons of one county (default: %(default)s)",
    )
    demo.add_argument(
        "--directory",
        metavar="FOLDER",
        help="folder to write to (default: spineflow-demo, or spineflow-FLOW)",
    )
    demo.add_argument(
        "--country",
        action="store_true",
        help="generate a country abroad instead, declared in its settings file",
    )

    published = add(
        "from-pl94171",
        "turn a published P.L. 94-171 release into input tables for experiments",
        "Read the geographic header and the three segments of a state's published redistricting "
        "files, and write fictional records that tabulate to their block counts, with settings.",
    )
    published.add_argument("release", metavar="FOLDER", help="folder of the state's .pl files")
    published.add_argument("directory", metavar="DIRECTORY", help="folder to write the tables to")


def _add_runs(add: Add) -> None:
    run = add(
        "run",
        "run a flow",
        "Run a flow. The same command again continues the same run: what is finished is reused, "
        "and noise that has been drawn is never drawn again.",
    )
    _with_settings(run)
    _with_log(run)
    run.add_argument(
        "--run-dir",
        metavar="RUN_DIR",
        help="folder of the run (default: runs/ beside the settings file, and there a name made "
        "from the dataset and the settings)",
    )

    resume = add(
        "resume",
        "continue a run that was interrupted",
        "Continue a run with the settings that it began with. What runs its tasks may change, "
        "since the release does not depend on it: --set run.workers=1, run.runner=threads or "
        "run.dask_address=tcp://host:8786.",
    )
    resume.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    _with_overrides(resume, "change run.runner, run.workers or run.dask_address")
    _with_log(resume)

    report = add(
        "report",
        "write the reports of a finished run again, or compare several runs",
        "Write the public report of a finished run again, and its confidential accuracy report. "
        "Several runs are compared with the truth side by side, in the first one's confidential "
        "folder, and in its report folder too if no input is confidential.",
    )
    report.add_argument("run_directories", metavar="RUN_DIR", nargs="+", help=RUN_DIR)
    report.add_argument(
        "--expected",
        type=int,
        default=0,
        metavar="N",
        help="also simulate so many releases from the release, for a public page of the errors to "
        "be expected (default: %(default)s)",
    )


def _add_simulate(add: Add) -> None:
    sub = add(
        "simulate",
        "tell what a finished run would take on other workers",
        "Replay the recorded tasks of a finished run on so many workers: seconds, how busy the "
        "workers are, and the bytes a second that the storage must give. Reads the run's "
        "work.jsonl, and runs nothing.",
    )
    sub.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    sub.add_argument(
        "--workers",
        type=_positive,
        nargs="+",
        default=[1, 2, 4, 8, 32, 128],
        metavar="N",
        help="numbers of workers to tell of (default: 1 2 4 8 32 128)",
    )
    sub.add_argument(
        "--cores",
        type=_positive,
        metavar="N",
        help="number of processors (default: one for each worker)",
    )
    sub.add_argument(
        "--times",
        type=_positive,
        default=1,
        metavar="N",
        help="how many times as large the run is: stages of several tasks have so many times as "
        "many, others take so many times as long (default: %(default)s)",
    )
    sub.add_argument(
        "--storage",
        type=float,
        metavar="MB",
        help="megabytes a second that the storage gives (default: as many as are asked for)",
    )
    sub.add_argument(
        "--computing",
        action="store_true",
        help="count processor seconds of the tasks instead of seconds, as on machines with nothing "
        "else to do",
    )
    sub.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _add_replicates(add: Add) -> None:
    replicates = add(
        "replicates",
        "run again and again on data that may be disclosed: mean errors, and true counts",
        "Measure and estimate several times with different noise, on input that is not "
        "confidential, and write the mean errors of the replicates. For detailed-groups the true "
        "counts are written too, in the layout of the production program's target counts.",
    )
    _with_settings(replicates, REPLICATED)
    replicates.add_argument(
        "--replicates",
        type=int,
        default=10,
        metavar="N",
        help="number of replicates (default: %(default)s)",
    )
    replicates.add_argument(
        "--out",
        default="replicates",
        metavar="FOLDER",
        help="folder to write to (default: %(default)s)",
    )


def _add_intervals(add: Add) -> None:
    intervals = add(
        "intervals",
        "make confidence intervals from a topdown run's noisy measurements",
        "Make best linear unbiased estimates from all noisy measurements of a topdown run, with "
        "exact standard deviations and intervals, for every geounit of its geolevels or for areas "
        "that are lists of blocks. Reads nothing confidential, and spends nothing.",
    )
    intervals.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    intervals.add_argument(
        "--query",
        action="append",
        required=True,
        dest="queries",
        metavar="Q",
        help="marginal query, such as total or 'sex * age'; may be given several times",
    )
    intervals.add_argument(
        "--universe",
        metavar="UNIVERSE",
        help="universe that is counted (default: the first of the run)",
    )
    where = intervals.add_mutually_exclusive_group()
    where.add_argument(
        "--geolevel", metavar="GEOLEVEL", help="geolevel of the areas (default: all of the spine)"
    )
    where.add_argument(
        "--entities",
        metavar="FILE",
        help="areas of your own instead: CSV or Parquet with the columns area and block, or, in "
        "place of block, the name of a declared census's last geolevel",
    )
    intervals.add_argument(
        "--share-of",
        metavar="Q",
        help="also the share that each answer has of the one of this query that it is a part of",
    )
    intervals.add_argument(
        "--compare",
        metavar="FILE",
        help="pairs whose differences and ratios are wanted instead: CSV or Parquet with the "
        "columns first and second, geocodes of --geolevel or areas of --entities",
    )
    intervals.add_argument(
        "--level",
        type=float,
        default=0.9,
        metavar="P",
        help="probability with which an interval holds the truth (default: %(default)s)",
    )
    intervals.add_argument(
        "--out",
        metavar="FILE",
        help="file to write, .parquet or .csv (default: in the run's intervals/)",
    )


def _add_measurements(add: Add) -> None:
    measurements = add(
        "measurements",
        "write a topdown run's noisy measurements in the published layout",
        "Write the noisy measurements and constraints of a topdown run as the U.S. Census Bureau "
        "has published its own, with the state totals and what was asked beside them. 'spineflow "
        "run estimate' reads them. Nothing confidential is read, and nothing spent.",
    )
    measurements.add_argument(
        "action", choices=("export",), help="what to do: export, which writes them"
    )
    measurements.add_argument("run_directory", metavar="RUN_DIR", help=RUN_DIR)
    measurements.add_argument("directory", metavar="DIR", help="new folder to write to")


def _add_budgets(add: Add) -> None:
    check = add(
        "check",
        "validate settings and inputs; draw no noise, spend nothing",
        "Check that settings are in order, and the input against every rule. Nothing is spent.",
    )
    _with_settings(check)

    budget = add(
        "budget",
        "show what a run would cost: rho, epsilon, sigma of every query",
        "Show what a run would cost and how wide its noise would be. Reads nothing confidential, "
        "and spends nothing.",
    )
    _with_settings(budget)
    budget.add_argument("--json", action="store_true", help="print JSON instead of tables")
    budget.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="WHAT=MARGIN",
        help="95 %% margin of error of an answer, whose budget is told: for example "
        "persons:County:total=25 of topdown, TRACT:2=11 of detailed-groups, county=40 of "
        "group-sizes, 8=30 (a level) of trips, or one of these after PRODUCT: of products; may be "
        "given several times, for which group-sizes and trips also tell the best split",
    )
    budget.add_argument(
        "--curve",
        metavar="FILE.svg",
        help="also draw delta over epsilon, and what a test of one record can tell",
    )
    budget.add_argument(
        "--forecast",
        metavar="FILE.html",
        help="also write a page of what topdown's estimates will be like",
    )
    budget.add_argument(
        "--replicates",
        type=int,
        default=0,
        metavar="N",
        help="number of releases that are simulated for the forecast (default: %(default)s)",
    )


def _add_design(add: Add) -> None:
    design = add(
        "design",
        "find the best split of a budget, with proof that none is much better",
        "Find the split over geolevels and queries of topdown, or over levels of group-sizes or "
        "trips, whose margins of the targets in [design] are smallest, or the smallest budget that "
        "meets them, and write settings with it. "
        "Reads geography and declared invariants, nothing confidential, and spends nothing.",
    )
    _with_settings(design, ("topdown", "group-sizes", "trips"))
    design.add_argument(
        "--out",
        metavar="FILE.toml",
        help="settings file to write (default: SETTINGS-designed.toml)",
    )
    design.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _add_spine(add: Add) -> None:
    spine = add(
        "spine",
        "show how far named entities are from the spine, from public data alone",
        "Work out the off-spine distance of every entity of the categories that a topdown spine "
        "targets, such as places: the fewest geounits that are added and subtracted to make it up. "
        "Reads the geography and declared invariants, no person and no ledger, and spends nothing.",
    )
    spine.add_argument("settings", metavar="SETTINGS.toml", help=SETTINGS)
    _with_overrides(spine, "override one setting")
    spine.add_argument(
        "--entities",
        metavar="FILE",
        help="areas of your own besides: CSV or Parquet with the columns area and block",
    )
    spine.add_argument("--page", metavar="FILE.html", help="also write a page with charts")
    spine.add_argument("--csv", metavar="FILE.csv", help="also write the distances of all entities")


def _add_ledger(add: Add) -> None:
    ledger = add(
        "ledger",
        "make a ledger, show what datasets have spent, set caps, or join two",
        "Show what every dataset has spent, by product, natively and composed as bounded zCDP per "
        "person. 'init' makes a ledger, with caps that no spending may pass; 'set-cap' sets those "
        "of a dataset; 'move' says that a run goes on in a folder that was copied, restored or "
        "moved to another disk, and nowhere else; 'join' moves all that another ledger holds into "
        "this one; 'list' shows the ledgers of this machine, and 'forget' takes one off the list.",
    )
    ledger.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=("show", "init", "set-cap", "move", "join", "list", "forget"),
        metavar="ACTION",
        help="what to do: show, init, set-cap, move, join, list or forget (default: %(default)s)",
    )
    ledger.add_argument(
        "name",
        nargs="?",
        metavar="DATASET",
        help="dataset whose cap is set; for move the folder of the run, for join and forget the "
        "other ledger",
    )
    ledger.add_argument(
        "rho", nargs="?", metavar="CAP", help="for set-cap the cap of rho, a fraction such as 3/2"
    )
    for option, what, cap in (
        ("--cap", "rho of bounded zCDP per person", "CAP"),
        ("--delta-cap", "the sum of the deltas", "CAP"),
        ("--epsilon-cap", "epsilon at a delta, such as 16.5@1e-10", "EPSILON@DELTA"),
    ):
        ledger.add_argument(
            option,
            action="append",
            default=[],
            metavar=f"[DATASET=]{cap}",
            help=f"for init and set-cap a cap of {what}, of one dataset or of each without its "
            "own; may be given several times",
        )
    ledger.add_argument(
        "--planned",
        action="store_true",
        help="promise that all runs under the caps of epsilon are planned before the first result "
        "is seen, so that the exact curve of all of them counts",
    )
    ledger.add_argument(
        "--ledger",
        default="ledger.db",
        metavar="FILE",
        help="file of the ledger (default: %(default)s)",
    )
    ledger.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _add_servers(add: Add) -> None:
    serve = add(
        "serve",
        "register the flows with a Prefect server and run them from this machine",
        "Register the flows with the Prefect server at PREFECT_API_URL, and run what is started "
        "from its UI on this machine until interrupted.",
    )
    _with_log(serve)
    deploy = add(
        "deploy",
        "register the flows with a Prefect server, for the workers of a work pool",
        "Register the flows with the Prefect server at PREFECT_API_URL. Workers of the pool run "
        "them: prefect worker start --pool POOL.",
    )
    deploy.add_argument(
        "--pool",
        default="spineflow",
        metavar="POOL",
        help="work pool, made of type process if it is missing (default: %(default)s)",
    )
    for sub in (serve, deploy):
        sub.add_argument(
            "flows",
            nargs="*",
            metavar="FLOW",
            help=f"flows to register (default: all of {', '.join(MODULES)})",
        )


def _add_installation(add: Add) -> None:
    completion = add(
        "completion",
        "print what completes commands in a shell",
        "Print a script for a shell, with which the Tab key completes commands, flows and options. "
        "For bash: spineflow completion bash > "
        "~/.local/share/bash-completion/completions/spineflow. For zsh, into a folder of $fpath: "
        "spineflow completion zsh > ~/.zfunc/_spineflow.",
    )
    completion.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"shell to write for: {', '.join(SHELLS)}"
    )
    compiling = add(
        "compile",
        "compile the kernels of long runs, once per installation",
        "Compile the kernels of long runs, which otherwise the first of these runs does.",
    )
    compiling.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="number of processes at once (default: as many as there are processors)",
    )
