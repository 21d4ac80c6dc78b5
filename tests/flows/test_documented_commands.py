"""Every command of README.md, the tutorial, the how-to pages and some explanations runs.

A page's commands run in their order, in a folder with small generated tables under the names that
the page uses, `RUN_DIR` included. Commands of Prefect run against a server and a worker.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import spineflow
import yaml
from cyclopts import MissingArgumentError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.testing.cli import CycloptsCliRunner
from spineflow.flows import demo
from spineflow.flows.cli import app, main
from spineflow.tasks.topdown.ingest.generate import generate_county

from tests.conftest import NO_TELEMETRY
from tests.flows.in_process import stages_in_process, tasks_in_threads
from tests.flows.test_deployments import WITHOUT_BLOCKS
from tests.services import asked, free_port, running, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
spec = importlib.util.spec_from_file_location("newcomer", DOCS / "newcomer.py")
newcomer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(newcomer)

NOT_RUN = {
    "make demo": "makes an environment; its `spineflow demo` is run by test_installed",
    "make test": "runs these tests",
    "git clone": "docs/newcomer.py runs it with the two lines below it",
    "python3.11 -m venv": "see `git clone`",
    "env/bin/pip install": "a package index",
    ".venv/bin/python -m benchmarks.": "the state's tables, and minutes",
    "export PREFECT_API_DATABASE_CONNECTION_URL": "PostgreSQL",
    "prefect server start --host": "PostgreSQL",
    "podman ": "a container engine; see test_container",
    "kubectl ": "a cluster; test_deploy_kit checks the manifests",
    "opentelemetry-instrument ": "a collector of traces; see test_traces",
}
"""Reasons why commands of the pages are not run, by their beginning."""

CODES = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""Columns of the geography that make the code of a block."""

PROGRAMS = (
    *("spineflow", "prefect", "make", "git", "python3.11", "pip", "python"),
    *("export", "podman", "kubectl", "opentelemetry-instrument"),
)


def pages_of(section: str) -> list[str]:
    """Pages in a section of the site that are files of docs/."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    (pages,) = [entry[section] for entry in nav if isinstance(entry, dict) and section in entry]
    return [page for page in pages if isinstance(page, str) and (DOCS / page).exists()]


def text_of(page: str) -> str:
    """A page's Markdown."""
    return (ROOT if page == "README.md" else DOCS).joinpath(page).read_text(encoding="utf-8")


def blocks_of(page: str, kind: str) -> list[str]:
    """The fenced blocks of a language on a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    """The commands in the fenced blocks of a page, without comments."""
    blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)
    lines = [
        line
        for kind, block in blocks
        if kind in ("", "sh")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if (line.split() or [""])[0].rpartition("/")[2] in PROGRAMS]


def is_run(command: str) -> bool:
    """Whether nothing that the command needs is missing."""
    return not command.startswith(tuple(NOT_RUN))


@pytest.fixture(scope="module")
def finished_county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tables, settings and finished private run of a small county."""
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=800, seed=3)
    (folder / "settings.toml").write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{folder}/persons.parquet"\n'
        f'units = "{folder}/units.parquet"\ngeography = "{folder}/grfc.txt"\n'
        '[privacy]\ndataset = "county"\nledger = "county.db"\n',
        encoding="utf-8",
    )
    with stages_in_process(judged_twice=False):
        settings, run = str(folder / "settings.toml"), str(folder / "run")
        assert main(["run", "topdown", settings, "--run-dir", run]) == 0
    return folder


def own_table(page: str, place: str, rows: int) -> Callable[[Path, Path], None]:
    """Tables of residents and areas in a place, with the settings of a page."""

    def write(folder: Path, _: Path) -> None:
        (folder / place).mkdir(exist_ok=True)
        newcomer.write_tables(folder / place, rows)
        for name, columns in re.findall(r"= \"(\w+\.csv)\" +# columns ([\w, ]+)", text_of(page)):
            frame = pd.read_csv(folder / place / name)[columns.split(", ")]
            frame.to_csv(folder / place / name, index=False)
        (settings,) = blocks_of(page, "toml")
        (folder / place / "settings.toml").write_text(settings, encoding="utf-8")

    return write


def run_under(*names: str) -> Callable[[Path, Path], None]:
    """Copies of the finished run under some names, and settings of the same tables."""

    def write(folder: Path, county: Path) -> None:
        for name in names:
            shutil.copytree(county / "run", folder / name)
        text = (county / "settings.toml").read_text(encoding="utf-8")
        (folder / "settings.toml").write_text(text.replace("county.db", "own.db"))
        geography = pd.read_csv(county / "grfc.txt", sep="|", dtype=str)
        areas = pd.DataFrame({"area": "A", "block": geography[list(CODES)].sum(axis=1)})
        areas.loc[::2, "area"] = "B"
        areas.to_csv(folder / "districts.csv", index=False)
        pd.DataFrame({"first": ["A"], "second": ["B"]}).to_csv(folder / "pairs.csv", index=False)

    return write


def office(folder: Path, county: Path) -> None:
    """The finished run, and the texts of the page's office."""
    run_under("runs/census")(folder, county)
    (text,) = blocks_of("registration.md", "toml")
    (folder / "office.toml").write_text(text, encoding="utf-8")


def published_tables(folder: Path, county: Path) -> None:
    """The files of P.L. 94-171 of the finished run."""
    shutil.copytree(county / "run" / "release" / "pl94171", folder / "FOLDER")


def several_ledgers(folder: Path, _: Path) -> None:
    """Two ledgers that the machine's list has, and one that is gone."""
    for name in ("ledger.db", "old/ledger.db", "gone/ledger.db"):
        (folder / name).parent.mkdir(exist_ok=True)
        assert main(["ledger", "init", "--cap", "1", "--ledger", str(folder / name)]) == 0
    shutil.rmtree(folder / "gone")


FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    "accuracy.md": run_under("RUN_DIR", "OTHER_RUN"),
    "README.md": own_table("README.md", "", 300),
    "tutorial.md": own_table("tutorial.md", "mine", 500),
    "registration.md": office,
    "storage.md": run_under("RUN_DIR"),
    "tables.md": published_tables,
    "intervals.md": run_under("RUN_DIR"),
    "spines.md": run_under(),
    "recognition.md": several_ledgers,
}
"""Functions that fill a page's folder, given the folder of the finished county."""

EXPLANATIONS = ("accuracy.md", "intervals.md", "ledger.md", "recognition.md", "spines.md")
"""Explanations that have commands for the reader's own run."""

WORK_POOLS = (("deployment.md", "operations.md"), ("production.md",))
"""Pages with commands of Prefect, by the work pool that the first of them makes."""

ELSEWHERE = ("grid.md", "tutorial.md")
"""Pages whose commands run in test_demo, and in a test below."""

FLOWS_OF_FLOWS = ("products.md", "tuning.md")
"""Pages on flows that call others, whose tasks are in threads."""

RUN_HERE = [
    pytest.param(page, marks=[pytest.mark.soak(6)] * (page in (*FLOWS_OF_FLOWS, "tables.md")))
    for page in ("README.md", *pages_of("Tutorial"), *pages_of("How-to"), *EXPLANATIONS)
    if page not in (*sum(WORK_POOLS, ()), *ELSEWHERE) and any(map(is_run, commands_of(page)))
]


@pytest.fixture
def few_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Demonstrations generate small counties."""
    monkeypatch.setitem(generate_county.__kwdefaults__, "persons", 800)
    monkeypatch.setitem(demo._generate_few.keywords, "persons", 800)


@pytest.mark.parametrize("page", RUN_HERE)
@pytest.mark.usefixtures("few_persons")
def test_the_commands_of_a_page_run(
    page: str, finished_county: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    is_nested = page in FLOWS_OF_FLOWS
    tasks = tasks_in_threads if is_nested else partial(stages_in_process, judged_twice=False)
    monkeypatch.setenv("SPINEFLOW_LEDGERS", str(tmp_path / "ledgers"))
    monkeypatch.chdir(tmp_path)
    FOLDERS.get(page, lambda *_: None)(tmp_path, finished_county)
    for command in filter(is_run, commands_of(page)):
        program, *arguments = shlex.split(command, comments=True)
        assert program.rpartition("/")[2] == "spineflow", f"no reason in NOT_RUN for {command}"
        if arguments[:2] == ["ledger", "init"]:  # A page may make it in two ways.
            Path("ledger.db").unlink(missing_ok=True)
            Path("ledger.db.key").unlink(missing_ok=True)
        with tasks():
            assert main(arguments) == 0, f"{command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", ["README.md", "library.md", "run_directory.md"])
@pytest.mark.usefixtures("in_process")
def test_the_python_of_a_page_runs(
    page: str, finished_county: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_table("README.md", "", 300)(tmp_path, finished_county)
    for name in ("spineflow-demo/run", "run"):
        shutil.copytree(finished_county / "run", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    tables = {name: pd.read_csv(f"{name}.csv", dtype=str) for name in ("residents", "areas")}
    names = {"pd": pd, "spineflow": spineflow, **tables}
    exec("".join(blocks_of(page, "python")), names)
    assert isinstance(names.get("run"), spineflow.Run) or page == "run_directory.md"


@pytest.mark.soak(22)
def test_commands_on_a_server_run(
    real_server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start a server and a worker by the page, deploy, and administer them."""
    port = free_port()
    (tmp_path / "home").mkdir()
    shutil.copy(real_server.new_database, tmp_path / "home" / "prefect.db")
    address = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_API_URL": address,
        **NO_TELEMETRY,
        **WITHOUT_BLOCKS,
    }
    monkeypatch.chdir(ROOT)
    with temporary_settings({PREFECT_API_URL: address}), ExitStack() as servers:
        for number, pages in enumerate(WORK_POOLS):
            if number:  # A reader of the next page has no pool yet.
                run_here("prefect", "work-pool", "delete", "spineflow")
            with ExitStack() as workers:
                for command in filter(is_run, sum(map(commands_of, pages), [])):
                    first, *arguments = shlex.split(command, comments=True)
                    log = tmp_path / f"{arguments[0]}.log"
                    process = [sys.executable, "-m", "prefect", *arguments], environment, log
                    if first == "export":
                        assert "AUTH_STRING" in command or ":4200/api" in command
                    elif arguments[:2] == ["server", "start"]:
                        servers.enter_context(running(*process))
                        wait_until(lambda: asked(f"{address}/health"), command)
                    elif arguments[:2] == ["worker", "start"]:
                        workers.enter_context(running(*process))
                        wait_until(lambda log=log: "started!" in log.read_text(), command)
                    else:
                        run_here(first, *arguments)


def run_here(program: str, *arguments: str) -> None:
    """Run a command in this process, which has imported Prefect."""
    if program == "spineflow":
        assert main(list(arguments)) == 0, arguments
        return
    assert program == "prefect"
    done = CycloptsCliRunner().invoke(["--no-prompt", *arguments])
    assert done.exit_code == 0, f"{arguments}\n{done.output}"


def test_every_reason_belongs_to_a_command() -> None:
    pages = ("README.md", *pages_of("Tutorial"), *pages_of("How-to"))
    shown = [command for page in pages for command in commands_of(page)]
    assert not [start for start in NOT_RUN if not any(one.startswith(start) for one in shown)]


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_commands_in_sentences_are_understood(page: str) -> None:
    sentences = re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"`(?:\.venv/bin/)?spineflow ([a-z][^`…]*)`", sentences):
        words = shlex.split(command.replace(" --log json", ""))
        words = ["topdown" if word in ("FLOW", "PRODUCT") else word for word in words]
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except MissingArgumentError:  # A command's name stands for it.
            assert len(words) == 1 or words[0] in ("run", "measurements"), command


def test_the_readme_fits_a_screen_or_two() -> None:
    assert len(text_of("README.md").splitlines()) <= 80


@pytest.mark.usefixtures("in_process")
def test_the_tutorial_shows_the_output_of_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    FOLDERS["tutorial.md"](tmp_path, tmp_path)
    page = text_of("tutorial.md")
    for name in ("residents", "areas"):
        header = (tmp_path / "mine" / f"{name}.csv").read_text().splitlines()[0]
        assert f"```\n{header}\n" in page
    for command in filter(is_run, commands_of("tutorial.md")):
        assert main(shlex.split(command)[1:]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for line in (
        "charged rho 1/2 (about 0.5) to dataset 'my-town'.",
        "The cap is rho 1, of which 0 is spent; 0.5 would remain.",
        "The settings and the input are in order.",
        "epsilon 6.84 at delta 1e-10, from a rho of 0.5).",
        "12 checks passed",
    ):
        assert line in page and line in said, line
    (folder,) = (tmp_path / "mine" / "runs").glob("my-town-topdown-*")
    run = spineflow.open_run(folder)
    assert run.table("AGE_SEX").query("level == 'region'")["count"].sum() == len(run.microdata())
    for path in re.findall(r"^- `([\w./]+)`", page, re.MULTILINE):
        assert (folder / path).exists(), path
