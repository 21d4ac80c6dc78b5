"""Release census-like data under differential privacy.

flows: topdown, microdata and redistricting tables; estimate, these from published noisy
measurements alone; detailed-groups, tables for detailed race and ethnicity groups;
detailed-households, households by type and tenure for the same groups; group-sizes, households of
every size by region; supplemental-dhc, people joined with their households; trips,
origin/destination tables and other trees; products, several of these on one dataset;
tune, budgets tried on public data; evidence, other protection methods and attacks compared with
these on public data.

exit codes: 0 done; 1 unforeseen error; 2 settings or input refused; 3 privacy-loss cap reached
or ledger unusable; 4 an optimisation failed; 5 a check of the result failed, release withheld.

first steps: 'spineflow demo' runs everything on a generated county; then copy the settings file
it prints, point it at your own tables, make a ledger with caps ('spineflow ledger init --cap 3'),
and use 'spineflow check' and 'spineflow run'.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError

from ..tasks.ledger.caps import summary
from ..tasks.products.product import Product, existing_run, product, refuse_missing_runner
from ..tasks.products.spent import new_charge
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused, SpineflowError
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import with_resume_overrides
from ..validation.rules import by_the_rules_alone
from . import STARTED
from .budgets import show_budget
from .console import (
    AnyDemo,
    FlowName,
    Overrides,
    RunFolder,
    SettingsFile,
    check_input,
    print_block,
    print_closing,
    print_ledger,
    print_stages,
    print_summary,
)
from .kernels import announce_and_compile, compile_in_background, load_kernels
from .ledger import WrittenCaps, init_ledger
from .logs import JSON, LOGGER, drop_output, exit_code_of, log_json_lines, logging_as
from .registry import MODULES, flow_of
from .reports import write_comparison, write_expected_errors, write_report
from .topdown_commands import explore, intervals, measurements, show_spine, write_published_input

if TYPE_CHECKING:
    from .servers import Server

app = App(
    name="spineflow",
    help=__doc__,
    help_format="markdown",
    result_action="return_value",
    version=lambda: f"spineflow {version('spineflow')}",
    default_parameter=Parameter(
        negative=(),
        show_default=lambda value: str(value) if value else None,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        return app.meta(arguments, exit_on_error=False, print_error=False) or 0
    except CycloptsError as error:
        print(f"spineflow: {_usage_error(error)}", file=sys.stderr)
        return 2


def _usage_error(error: CycloptsError) -> str:
    """A sentence on arguments that cannot be understood; a flow is named after 'run'."""
    chain = error.command_chain or ()
    name = (error.unused_tokens or [""])[0] if isinstance(error, UnknownCommandError) else ""
    if name.replace("_", "-") in MODULES:
        return f"There is no command {name!r}; it is a flow, which 'spineflow run {name}' runs."
    return f"{error} See '{' '.join(['spineflow', *chain])} --help'."


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: bool = False,
    log: Literal["text", "json"] = "text",
) -> int:
    """Run the command of some arguments; returns the exit code.

    Args:
        debug: show tracebacks and flow logs
        log: format of messages on standard error: text, or json, one object a line for the log of a
            service
    """
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    _quieten("INFO" if debug else "CRITICAL")
    if command is serve and log == JSON:
        log_json_lines()

    def call() -> int:
        return _run_command(lambda: command(*bound.args, **bound.kwargs), is_debugged=debug)

    with logging_as(log):
        # Prefect ends serve, and the runs that it has begun.
        return call() if command is serve else exit_code_of(call)


def _run_command(command: Callable[[], int | None], *, is_debugged: bool) -> int:
    """The exit code of a command, whose errors are reported in a sentence."""
    try:
        code = command() or 0
        if sys.stdout is not None:  # The parent process may have closed it.
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        drop_output(sys.stdout)
        return 1
    except SpineflowError as error:
        if is_debugged:
            raise
        LOGGER.error("%s.", str(error).rstrip("."))
        return error.exit_code
    except Exception as error:
        if is_debugged:
            raise
        name = type(error).__name__
        LOGGER.error("%s; run the command again with --debug for the traceback.", name)
        return 1


SEMAPHORES = "ignore::UserWarning:multiprocessing.resource_tracker"
"""A filter for Python's tracker of semaphores, a process that outlives an interrupted command and
would warn, after the command's last sentence, of the tasks that it cleans up."""


def _quieten(level: str) -> None:
    """Keep library logs below a level off the console, and their own logging errors."""
    if SEMAPHORES not in sys.warnoptions:
        sys.warnoptions.append(SEMAPHORES)
    for handler in ("CONSOLE", "DEBUG"):
        os.environ.setdefault(f"PREFECT_LOGGING_HANDLERS_{handler}_LEVEL", level)
    if logging.lastResort is not None:
        logging.lastResort.setLevel(level)
    logging.raiseExceptions = level != "CRITICAL"


@app.command
def demo(
    flow: AnyDemo = "topdown",
    /,
    *,
    directory: Path | None = None,
    country: bool = False,
    open: bool = False,
) -> int:
    """Run everything on generated input.

    Generate input for a flow, write its settings and a ledger, and run them. 'spineflow demo'
    alone generates a county of 30,000 persons and runs topdown.

    Args:
        flow: a flow; households, which is redistricting, housing units and persons
            of one county; or grid, a European census in cells of 1 km
        directory: folder to write to (default: spineflow-demo, or spineflow-FLOW)
        country: generate a country abroad instead, declared in its settings file
        open: open the report in the desktop's browser at the end
    """
    from .demo import DEMO_CAP, GENERATED, write_demo  # 0.7 s

    if country and flow != "topdown":
        raise InputRefused(f"--country is a demonstration of topdown; leave it out of {flow}.")
    shown = GENERATED["country" if country else flow]
    folder = directory or Path(shown.folder)
    settings_file = write_demo(shown, folder)
    ledger_file = folder / "ledger.db"
    if shown.spends and not ledger_file.exists():
        # Its people are generated: it does not belong in the list of this machine's ledgers.
        made = init_ledger(ledger_file, WrittenCaps(cap=[DEMO_CAP]), is_listed=False)
        print_ledger(summary(made), as_json=False)
    print(f"Generated input and its settings are in {folder}/")
    command = ["run", shown.flow, str(settings_file), "--run-dir", str(folder / "run")]
    print(f"Running: spineflow {' '.join(command)}")
    code = main(command)
    if open and code == 0:
        webbrowser.open(RunDirectory(folder / "run").report.resolve().as_uri())
    return code


@app.command
def run(
    flow: FlowName,
    settings: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    run_dir: Path | None = None,
) -> None:
    """Run a flow.

    The same command again continues the same run: finished work is reused, and noise is never drawn
    twice.

    Args:
        run_dir: folder of the run (default: in runs/ next to the settings file, named after the
            dataset and the settings)
    """
    from .servers import server_for_runs  # 0.8 s

    with server_for_runs() as server:
        # It starts while the flow is imported.
        server.begin()
        asked = product(flow)
        own = asked.load(settings, overrides)
        from .running import default_run_directory, prepare  # 1.3 s, while the server starts

        folder = prepare(own, run_dir or default_run_directory(own, settings))
        _run_and_report(asked, folder, own, server)


@app.command
def resume(run_directory: RunFolder, /, *, overrides: Overrides = ()) -> None:
    """Continue a run that was interrupted.

    It keeps its original settings, except for the runner of its tasks, on which the release does
    not depend (--set run.workers=1, run.runner=threads, run.dask_address=tcp://host:8786), and,
    until it is released, [release] (--set release.margins=false).
    """
    from .running import prepare  # 1.3 s
    from .servers import server_for_runs

    existing, asked, frozen = existing_run(run_directory)
    settings = with_resume_overrides(frozen, overrides)
    refuse_missing_runner(settings.run)
    with server_for_runs() as server:
        _run_and_report(asked, prepare(settings, existing.root), settings, server)


def _run_and_report(
    asked: Product, run: RunDirectory, settings: ProductSettings, server: Server
) -> None:
    """Run the unfinished stages of a prepared run, and print the end."""
    from httpx import HTTPError

    from . import running
    from .endings import explain_error

    if run.read_manifest()["status"] != "complete":
        server.begin()
    if not running.is_done(asked, run, settings):
        is_compiling = compile_in_background(asked.name)
        # Imported and loaded while the server starts.
        flow_of(asked.name)
        load_kernels(asked.name)
        try:
            server.wait()
        except HTTPError as error:
            raise explain_error(error, str(run.root), settings.run) from None
        with print_stages(is_compiling):
            running.run_stages(asked, run, settings)
    print_summary(asked, run, settings)
    print_closing(run, settings, time.monotonic() - STARTED)


@app.command
def report(first: RunFolder, /, *others: RunFolder, expected: int = 0) -> None:
    """Write the reports of a finished run again, or compare several runs.

    They are its public report and its confidential accuracy report. Several runs are compared with
    the truth side by side, in the first one's confidential folder, and in its report folder too if
    no input is confidential.

    Args:
        expected: also simulate so many releases from the release, for a public page of the errors
            to be expected
    """
    existing = [existing_run(folder) for folder in (first, *others)]
    for own, asked, settings in existing if expected else ():
        print(f"expected errors: {write_expected_errors(own, asked, settings, expected)}")
    if others:
        print(f"comparison: {write_comparison(existing)}")
    else:
        print(f"report: {write_report(*existing[0])}")


@app.command
def registry(run_directory: RunFolder, /, *, office: Path | None = None) -> None:
    """Write a release's record for the registry of deployments, and a self-assessment.

    The record (YAML) and the self-assessment by the privacy hazards of NIST SP 800-226 (Markdown,
    HTML) are written into registry/ in the run directory. Figures come from the certificate.

    Args:
        office: TOML file with the texts of the office; without it they are left open
    """
    from ..tasks.dissemination.registration import register

    own, _, _ = existing_run(run_directory)
    written = register(own, office)
    for path in written.files:
        print(path)
    for what, names in (("texts", written.missing), ("answers", written.unanswered)):
        if names:
            print(f"{what} that the office must still give: {', '.join(names)}")


@app.command
def archive(run_directory: RunFolder, directory: Path, /, *, office: Path | None = None) -> None:
    """Copy a release into a folder for an archive, described as an RO-Crate.

    The folder has the release, its plan, its report and the source of the flow;
    ro-crate-metadata.json describes their relations (Workflow Run Crate).

    Args:
        directory: folder to write to, which is empty or not there yet
        office: TOML file with the texts of the office
    """
    from ..tasks.dissemination.crate import write_crate
    from ..tasks.dissemination.registration import read_office

    own, asked, _ = existing_run(run_directory)
    flow = Path(__file__).with_name(f"{asked.settings.PRODUCT.replace('-', '_')}.py")
    print(write_crate(own, flow, directory, read_office(office)))


@app.command
def check(flow: FlowName, settings: SettingsFile, /, *, overrides: Overrides = ()) -> None:
    """Validate settings and inputs; draw no noise, spend nothing.

    Check that settings are in order, and the input against every rule.
    """
    asked = product(flow)
    own = asked.load(settings, overrides)
    with by_the_rules_alone():
        check_input(asked, own)
    plans = asked.plans(own) if own.is_private and own.draws_noise else {}
    for sentence in new_charge(plans, own):
        print_block(sentence)
    print("The settings and the input are in order.")


app.command(show_budget, name="budget")
app.command(measurements)
app.command(intervals)
app.command(explore)
app.command(show_spine, name="spine")
app.command(write_published_input, name="from-pl94171")

app.command(
    "spineflow.flows.designs:write_design",
    name="design",
    help="""Find the best split of a budget, with a bound on any improvement.

    Find the split over geolevels and queries of topdown, or over levels of group-sizes or trips,
    whose margins of the targets in [design] are smallest, or the smallest budget that meets them,
    and write settings with it. Reads geography and declared invariants, nothing confidential, and
    spends nothing.""",
)

app.command(
    "spineflow.flows.ledger:app",
    name="ledger",
    help="""Make a ledger, show the spending of datasets, set caps, or join two.

    Without a command of its own it shows the spending.""",
)


@app.command
def serve(*flows: FlowName) -> None:
    """Register the flows with a Prefect server and run them from this machine.

    The server is named by PREFECT_API_URL; what is started from its UI runs here until interrupted.
    Without names of flows all are registered.
    """
    from .deployments import serve  # 1.1 s

    serve(flows)


@app.command
def deploy(*flows: FlowName, pool: str = "spineflow") -> None:
    """Register the flows with a Prefect server, for the workers of a work pool.

    PREFECT_API_URL names the server. Workers of the pool run them: prefect worker start --pool
    POOL. Without names of flows all are registered.

    Args:
        pool: work pool, made of type process if it is missing
    """
    from .deployments import deploy  # 1.1 s

    for name in deploy(flows, pool):
        print(f"registered {name}")
    print(f"Start a worker with: prefect worker start --pool {pool}")


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell.

    With this script the Tab key completes commands, flows and options. For bash:
    spineflow completion bash > ~/.local/share/bash-completion/completions/spineflow. For zsh, into
    a folder of $fpath: spineflow completion zsh > ~/.zfunc/_spineflow.

    Args:
        shell: shell to write for
    """
    print(app.generate_completion(shell=shell))


app.command(announce_and_compile, name="compile")


if __name__ == "__main__":
    sys.exit(main())
