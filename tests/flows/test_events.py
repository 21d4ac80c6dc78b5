"""What runs tell the automations of a Prefect server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spineflow.flows import endings, running
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.ledger.caps import Caps, set_caps, spent_and_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import existing_run
from spineflow.tasks.runs.errors import CheckFailed

from tests.flows.in_process import stages_in_process


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished private run, its ledger beside it."""
    folder = tmp_path_factory.mktemp("told")
    file = write_dataset(folder, census_like(groups=400, counties=4, states=2, largest=8))
    text = file.read_text().replace("confidential = false\n", "")
    file.write_text(f'{text}ledger = "ledger.db"\n')
    with stages_in_process(judged_twice=False):
        assert main(["run", "group-sizes", str(file), "--run-dir", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events that are sent to a server."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(endings, "is_embedded", lambda: False)
    monkeypatch.setattr(endings, "emit_event", lambda **event: found.append(event))
    return found


@pytest.mark.parametrize(
    ("share", "is_told"), [("1", True), ("9/10", True), ("899/1000", False), ("1/2", False)]
)
def test_a_dataset_near_its_cap_is_told_of(done: Path, sent, share: str, is_told: bool) -> None:
    run, _, settings = existing_run(done / "run")
    ledger = open_ledger(done / "ledger.db")
    spent = spent_and_caps(ledger, settings.privacy.dataset)[0].parameter
    set_caps(ledger, settings.privacy.dataset, Caps(spent / Fraction(share)))
    endings.emit_near_cap(run, settings)
    assert [event["event"] for event in sent] == ["spineflow.ledger.near-cap"] * is_told
    if is_told:
        told = sent[0]["payload"]
        assert Fraction(told["rho"]) == spent
        assert Fraction(told["remaining"]) == spent / Fraction(share) - spent


def test_releases_and_failed_checks_are_told_of(done: Path, sent) -> None:
    run, _, settings = existing_run(done / "run")
    endings.emit_published(run, settings)
    endings.emit_failed_check(run, settings, CheckFailed("a check failed"))
    assert [event["event"] for event in sent] == [
        "spineflow.release.published",
        "spineflow.check.failed",
    ]
    resource = f"spineflow.dataset.{settings.privacy.dataset}"
    assert all(event["resource"]["prefect.resource.id"] == resource for event in sent)
    assert sent[0]["payload"]["release"] == str(run.release)
    assert sent[1]["payload"]["message"] == "a check failed"


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_flow_tells_how_its_run_ended(
    done: Path, sent, monkeypatch: pytest.MonkeyPatch, is_sound: bool
) -> None:
    run, _, settings = existing_run(done / "run")

    @contextmanager
    def held(*_: object) -> Iterator[object]:
        yield SimpleNamespace(release=done / "none", read_manifest=run.read_manifest), settings

    monkeypatch.setattr(running, "lock_run", held)
    monkeypatch.setattr(running, "begin_run", lambda *_: None)
    monkeypatch.setattr(running, "watched", lambda *_: nullcontext())
    if is_sound:
        with running.enter_run(str(run.root), type(settings)):
            assert not sent, "the release does not stand yet"
        expected = endings.PUBLISHED
    else:
        with pytest.raises(CheckFailed), running.enter_run(str(run.root), type(settings)):
            raise CheckFailed("a check failed")
        expected = endings.CHECK_FAILED
    assert [event["event"] for event in sent] == [expected]


def test_a_server_of_the_command_alone_is_told_nothing(done: Path, monkeypatch) -> None:
    monkeypatch.setattr(endings, "is_embedded", lambda: True)
    monkeypatch.setattr(endings, "emit_event", lambda **event: pytest.fail("sent"))
    run, _, settings = existing_run(done / "run")
    endings.emit_published(run, settings)
