"""What flows submit to Prefect, and show on the page of a run, as functions in this process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spineflow.flows import entry, order
from spineflow.flows.cli import main
from spineflow.flows.order import submitted
from spineflow.flows.progress import BAR, end_picture, listening, run_id
from spineflow.flows.registry import flow_of
from spineflow.flows.results import show_failed_rules
from spineflow.flows.running import prepare, run_stages_here
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.measurement import steps as measuring
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.products.order import Aside, Wave, call
from spineflow.tasks.products.product import Product
from spineflow.tasks.products.registry import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import SpineflowError
from spineflow.tasks.runs.handles import Made, made
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.tables.outcomes import RULES_FILE

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
    run_stages_here(groups, again, settings)
    stages, others = (one.read_manifest()["stages"] for one in (run, again))
    assert list(stages) == list(others)
    for name, stage in stages.items():
        assert list(stage["digests"]) == list(others[name]["digests"]), name
        if name in ("measure", "estimate", "tables"):
            assert stage["digests"] == others[name]["digests"]
    assert run.read_manifest()["input_digests"] == again.read_manifest()["input_digests"]
    assert run.read_manifest()["status"] == "complete"
    assert run_id(str(run.root)) is None, "no flow run of a server has worked on it"


def test_every_call_is_a_task_and_every_stage_has_a_bar(done: tuple[RunDirectory, Shown]) -> None:
    run, shown = done
    names = Counter(name for name, *_ in shown.submitted)
    assert (
        names["measure groups"] == LEVELS
        and names["ingest groups"] == names["estimate groups"] == 1
    )
    assert sorted(keys for name, *keys in shown.submitted if name == "measure groups") == [
        *(["county"], ["nation"], ["state"]),
    ]
    bars = shown.texts["progress"]
    for stage in run.read_manifest()["stages"]:
        (line,) = [line for line in bars.splitlines() if line.startswith(f"| {stage} |")]
        n_tasks = LEVELS if stage == "measure" else 1
        assert "·" not in line and f"| {n_tasks} of {n_tasks} |" in line
    assert "left of the run" not in bars


def test_the_page_of_a_run_has_its_checks_and_its_certificate(
    done: tuple[RunDirectory, Shown],
) -> None:
    run, shown = done
    checks = json.loads((run.checks / "checks.json").read_text(encoding="utf-8"))["checks"]
    assert len(shown.tables["checks"]) == len(checks) > 3
    certificate = (run.release / "certificate.md").read_text(encoding="utf-8")
    assert shown.texts["certificate"] == certificate
    result = shown.texts["result"]
    assert f"All {len(checks)} checks of the result passed." in result
    assert f"- report: `{run.report}`\n- release: `{run.release}`" in result
    assert "NOT PRIVATE" in result


def test_what_only_topdown_has_is_refused_of_others(
    done: tuple[RunDirectory, Shown], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(done[0].root)
    asked = {
        "intervals": ["intervals", root, "--query", "total", "--geolevel", "Tract"],
        "such measurements": ["measurements", "export", root, str(tmp_path / "out")],
    }
    for what, command in asked.items():
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"{root} is no run of topdown; only those have {what}." in said


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
    monkeypatch.setattr(entry, "flow_run", asked)
    assert entry._run_name() == "group-sizes-settings"
    parameters |= {"settings_file": "", "settings": {"dataset": "people"}}
    assert entry._run_name() == "group-sizes-people"
    parameters["settings"] = SimpleNamespace(dataset="others")
    assert entry._run_name() == "group-sizes-others"
    parameters["settings"] = None
    assert entry._run_name() == "group-sizes-form"


def test_the_rules_that_are_not_met_are_shown_by_name(tmp_path: Path, shown: Shown) -> None:
    run = RunDirectory(tmp_path)
    show_failed_rules(run)
    rules = [
        {"suite": "the_units", "rule": "a_is_known", "passed": True},
        {"suite": "the_units", "rule": "b_is_known", "passed": False},
    ]
    run.checks.mkdir(parents=True)
    (run.checks / RULES_FILE).write_text(json.dumps(rules[:1]), encoding="utf-8")
    show_failed_rules(run)
    assert not shown.tables
    (run.checks / RULES_FILE).write_text(json.dumps(rules), encoding="utf-8")
    show_failed_rules(run)
    assert shown.tables == {
        "failed-rules": [{"table": "the units", "rule that is not met": "b is known"}]
    }


PIECES = [str(number) for number in range(4)]


def piece_file(run: RunDirectory, _settings: GroupSizesSettings, key: str) -> Path:
    return run.root / "estimates" / f"{key}.txt"


@step("make piece", GroupSizesSettings, run_name="piece-{key}", made_at=piece_file)
def make_piece(run: RunDirectory, settings: GroupSizesSettings, key: str) -> Made:
    """A step whose file says whether it was made before."""
    path = piece_file(run, settings, key)
    path.parent.mkdir(exist_ok=True)
    path.write_text(key, encoding="utf-8")
    return made(path)


def pieces_in(run: RunDirectory, *, are_small: bool = False) -> list[str]:
    """Submit the pieces as a stage; the stages that have ended, in order."""
    calls = [call(make_piece, key, is_small=are_small) for key in PIECES]
    after = call(make_piece, "last", after=calls)
    waves = submitted(run, [{"pieces": calls}, {"last": [after]}])
    ended = [stage for wave in waves for stage in wave]
    end_picture()
    return ended


@pytest.mark.parametrize("n_made", [3, 4])
def test_what_was_made_before_is_found_without_tasks(
    settings: ProductSettings,
    tmp_path: Path,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
    n_made: int,
) -> None:
    """Where it is much: otherwise the tasks find it, for all to see."""
    run = prepare(settings, tmp_path / "run")
    monkeypatch.setattr(order, "MOST_FOUND_BY_TASKS", 3)
    for key in PIECES[:n_made]:
        make_piece.fn(str(run.root), key)
    assert pieces_in(run) == ["pieces", "last"]
    every = [("make piece", key) for key in PIECES]
    assert shown.submitted == [*(every if n_made == 3 else []), ("make piece", "last")]
    digests = run.read_manifest()["stages"]["pieces"]["digests"]
    assert list(digests) == [f"estimates/{key}.txt" for key in PIECES]
    assert digests["estimates/2.txt"] == sha256(b"2").hexdigest()
    assert f"| pieces | `{'█' * BAR}` | 4 of 4 |" in shown.texts["progress"]


def test_small_calls_share_a_task_and_are_counted_one_by_one(
    settings: ProductSettings, tmp_path: Path, shown: Shown
) -> None:
    run, told = prepare(settings, tmp_path / "run"), list[tuple[str, int, int]]()
    with listening(lambda *stage: told.append(stage)):
        pieces_in(run, are_small=True)
    together, last = shown.submitted
    assert together[2:] == ([(key,) for key in PIECES], f"make piece {', '.join(PIECES)}")
    assert last == ("make piece", "last")
    assert told == [("pieces", 0, 4), ("pieces", 4, 4), ("last", 0, 1), ("last", 1, 1)]
    assert [(run.root / "estimates" / f"{key}.txt").read_text() for key in PIECES] == PIECES


def test_a_wave_that_is_left_to_itself_is_entered_when_it_has_ended(
    settings: ProductSettings, tmp_path: Path, shown: Shown
) -> None:
    run, waves = prepare(settings, tmp_path / "run"), list[list[str]]()
    aside, other = call(make_piece, "aside"), call(make_piece, "other")
    shown_waves: list[Wave] = []
    for wave in submitted(
        run,
        [Aside({"aside": [aside]}), {"other": [other]}, {"aside": [aside]}],
        show=shown_waves.append,
    ):
        waves.append([*wave, *run.read_manifest()["stages"]])
    assert waves == [["aside"], ["other", "other"], ["aside", "other", "aside"]]
    assert [list(wave) for wave in shown_waves] == [[], ["other"], ["aside"]]
    assert len(shown.submitted) == 2


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
    assert not any(name == "estimate groups" for name, *_ in shown.submitted)
    assert "result" not in shown.texts
