"""What flows submit to Prefect, and show on the page of a run, as functions in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import cloudpickle
import pytest
from prefect import Task
from prefect.futures import PrefectConcurrentFuture
from prefect.task_runners import TaskRunner
from spineflow.flows import running
from spineflow.flows.endings import explain_error
from spineflow.flows.registry import flow_of
from spineflow.flows.results import listening, run_id
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.flows.stages import Stages
from spineflow.flows.stages import stage as open_stage
from spineflow.tasks.group_sizes import steps as measuring
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.products.product import Product, product
from spineflow.tasks.runs.directory import RunDirectory, read_tasks
from spineflow.tasks.runs.errors import SpineflowError
from spineflow.tasks.runs.handles import Made, created
from spineflow.tasks.runs.settings import ProductSettings, RunnerSettings
from spineflow.tasks.runs.steps import step

from tests.flows.in_process import Shown, run_flow_here, tasks_in_threads

LEVELS = 3


@pytest.fixture(scope="module")
def groups() -> Product:
    return product("group-sizes")


@pytest.fixture(scope="module")
def settings(groups: Product, tmp_path_factory: pytest.TempPathFactory) -> ProductSettings:
    """Settings of a small run that may be disclosed, under a seed."""
    folder = tmp_path_factory.mktemp("submitted")
    file = write_dataset(folder, census_like(groups=300, counties=3, states=2, largest=6))
    return groups.load(file, ["privacy.seed=1"])


@pytest.fixture(scope="module")
def done(
    groups: Product, settings: ProductSettings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunDirectory, Shown]:
    """A finished run, and what its flow has shown and submitted."""
    with tasks_in_threads() as shown:
        run = prepare(settings, tmp_path_factory.mktemp("done") / "run")
        released = run_flow_here(groups, run, settings)
    assert released == str(run.release)
    return run, shown


@pytest.fixture
def shown() -> Iterator[Shown]:
    with tasks_in_threads() as found:
        yield found


def test_a_flow_makes_what_the_steps_make_as_functions(
    done: tuple[RunDirectory, Shown],
    groups: Product,
    settings: ProductSettings,
    tmp_path: Path,
    shown: Shown,
) -> None:
    run, _ = done
    again = prepare(settings, tmp_path / "run")
    run_stages_in_process(groups, again, settings)
    stages, others = (one.read_manifest()["stages"] for one in (run, again))
    assert list(stages) == list(others)
    for name, stage in stages.items():
        assert list(stage["digests"]) == list(others[name]["digests"]), name
        if name in ("measure", "estimate", "tables"):
            assert stage["digests"] == others[name]["digests"]
    assert run.read_manifest()["input_digests"] == again.read_manifest()["input_digests"]
    assert run.read_manifest()["status"] == "complete"
    assert run_id(str(run.root)) is None, "no flow run of a server has worked on it"


def test_every_call_is_a_task_and_every_stage_reports_progress(
    done: tuple[RunDirectory, Shown],
) -> None:
    run, shown = done
    names = Counter(name for name, *_ in shown.submitted)
    assert (
        names["measure groups"] == LEVELS
        and names["ingest groups"] == names["estimate groups"] == 1
    )
    assert sorted(keys for name, *keys in shown.submitted if name == "measure groups") == [
        *(["county"], ["nation"], ["state"]),
    ]
    assert shown.progress == dict.fromkeys(run.read_manifest()["stages"], 100)


@pytest.mark.parametrize("name", ["topdown", "group-sizes", "trips"])
def test_worker_processes_get_the_flow_as_bytes(name: str) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(flow_of(name))).name == name


def test_the_record_tells_what_tasks_wait_for(done: tuple[RunDirectory, Shown]) -> None:
    run, _ = done
    tasks = read_tasks(run).values()
    by_stage = {task.stage: task for task in tasks}
    assert by_stage["ingest"].after == []
    assert by_stage["ledger"].after == [by_stage["ingest"].kind]
    ended: dict[str, float] = {}
    for task in tasks:
        ended[task.kind] = max(ended.get(task.kind, 0.0), task.started + task.seconds)
    for task in tasks:
        assert all(ended[kind] <= task.started + 0.1 for kind in task.after), task


def test_a_settings_file_is_run_by_its_flow(
    groups: Product, tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no folder is given, it goes beside the file; its name tells of the file."""
    file = write_dataset(tmp_path, census_like(groups=100, counties=2, states=1, largest=8))
    released = flow_of("group-sizes").fn(str(file), "", ("privacy.seed=3",))
    run = RunDirectory(Path(released).parent)
    assert run.root.parent == tmp_path / "runs" and run.read_manifest()["status"] == "complete"
    assert "seed = 3" in run.settings.read_text(encoding="utf-8")
    assert str(run.report) in shown.texts["result"]
    parameters: dict[str, Any] = {"settings_file": str(file), "settings": None}
    asked = SimpleNamespace(flow_name="group-sizes", parameters=parameters)
    monkeypatch.setattr(running, "flow_run", asked)
    assert running._run_name() == "group-sizes-settings"
    parameters |= {"settings_file": "", "settings": {"dataset": "people"}}
    assert running._run_name() == "group-sizes-people"
    parameters["settings"] = SimpleNamespace(dataset="others")
    assert running._run_name() == "group-sizes-others"
    parameters["settings"] = None
    assert running._run_name() == "group-sizes-form"


PIECES = [str(number) for number in range(4)]


def piece_file(run: RunDirectory, _settings: GroupSizesSettings, key: str) -> Path:
    return run.root / "estimates" / f"{key}.txt"


@step("make piece", GroupSizesSettings, run_name="piece-{key}", made_at=piece_file)
def make_piece(run: RunDirectory, settings: GroupSizesSettings, key: str) -> Made:
    """A step whose file says whether it was made before."""
    path = piece_file(run, settings, key)
    path.parent.mkdir(exist_ok=True)
    path.write_text(key, encoding="utf-8")
    return created(path)


def submit_pieces(run: RunDirectory, _settings: ProductSettings) -> None:
    """Submit the pieces as a stage, and one after them."""
    with open_stage("pieces"):
        pieces = [make_piece.submit(str(run.root), key) for key in PIECES]
    with open_stage("last"):
        make_piece.submit(str(run.root), "last", wait_for=pieces)


class Threads(TaskRunner[Any]):
    """Calls tasks in threads, and keeps what it was told to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(2)
        self.awaited: list[list[Any]] = []

    def duplicate(self) -> Any:
        raise NotImplementedError

    def submit(self, task: Task, parameters: dict, wait_for: Any = (), _: Any = None) -> Any:
        self.awaited.append(list(wait_for))

        def perform() -> Any:
            for one in wait_for:
                one.wait()
            return task.fn(*parameters.values())

        return PrefectConcurrentFuture(uuid4(), self.pool.submit(perform))


def pieces_in(run: RunDirectory, settings: ProductSettings, runner: Any) -> list[str]:
    """Submit the pieces; the stages that have ended, in order."""
    ended: list[str] = []
    Stages(run, settings, runner, ended=ended.append).run(submit_pieces)
    return ended


def test_of_a_lost_worker_the_stages_that_were_under_way_are_named(
    settings: ProductSettings, tmp_path: Path, shown: Shown
) -> None:
    """The error of a pool, one of whose processes the system has ended, does not tell them."""

    class Losing(Threads):
        def submit(self, task: Task, parameters: dict, *further: Any) -> Any:
            if parameters["key"] == "2":
                lost: Future[Any] = Future()
                lost.set_exception(BrokenProcessPool())
                return PrefectConcurrentFuture(uuid4(), lost)
            return super().submit(task, parameters, *further)

    run = prepare(settings, tmp_path / "run")
    with pytest.raises(BrokenProcessPool) as error:
        pieces_in(run, settings, Losing())
    told = str(explain_error(error.value, str(tmp_path), RunnerSettings()))
    assert "ended in the middle of the stage 'pieces', most likely" in told
    assert "for want of memory; give the run more, or fewer tasks at once" in told


def test_the_error_is_that_of_the_task_that_failed(
    groups: Product,
    settings: ProductSettings,
    tmp_path: Path,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a stage with a task that failed nobody hears that it was done; what others made stays."""
    original, told = measuring.measure.fn, list[tuple[str, int, int]]()

    def failing(run_root: str, level: str) -> object:
        if level == "county":
            raise SpineflowError("this one failed")
        return original(run_root, level)

    failing.__dict__.update(original.__dict__)
    monkeypatch.setattr(measuring.measure, "fn", failing)
    run = prepare(settings, tmp_path / "run")
    with (
        listening(lambda *stage: told.append(stage)),
        pytest.raises(SpineflowError, match="this one failed"),
    ):
        run_flow_here(groups, run, settings)
    assert ("ingest", 0, 1) in told and ("ingest", 1, 1) in told
    assert ("measure", 0, LEVELS) in told and ("measure", LEVELS, LEVELS) not in told
    manifest = run.read_manifest()
    assert (manifest["status"], manifest["reason"]) == ("failed", "this one failed")
    assert "measure" not in manifest["stages"] and not run.release.exists()
    assert "estimate" not in manifest["stages"], "what waits for a task that failed is not begun"
    assert "result" not in shown.texts
