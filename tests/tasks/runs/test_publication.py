"""Copies of a release: whole or not at all, once, and never in place of another."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import fsspec
import pytest
from spineflow.tasks.runs import publication
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused, StorageFailed
from spineflow.tasks.runs.publication import (
    PublicationRefused,
    copy_release,
    describe_release,
    marker_address,
    refuse_taken_place,
)


class Settings:
    """As much of a product's settings as publication looks at."""

    PRODUCT = "topdown"

    def __init__(self, place: str) -> None:
        self.published_to = place


def finished_run(folder: Path, place: str, *, rows: str = "1|2\n") -> RunDirectory:
    run = RunDirectory(folder)
    folder.mkdir()
    text = f'[release]\npublish_to = "{place}"\n'
    start_run(run, product="topdown", settings_text=text)
    (run.release / "pl94171").mkdir(parents=True)
    (run.release / "mdf_persons.csv").write_text(rows)
    (run.release / "pl94171" / "geo.csv").write_text("44\n")
    (run.confidential / "histogram").write_text("confidential")
    (run.release / "link").symlink_to(run.confidential / "histogram")
    return run


@pytest.fixture(params=["folder", "file", "memory"])
def place(request, tmp_path: Path) -> str:
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]
        return f"memory://{tmp_path.name}/published"
    return f"{'file://' if request.param == 'file' else ''}{tmp_path / 'published'}"


def contents(place: str) -> dict[str, bytes]:
    store, root = fsspec.core.url_to_fs(place)
    return {
        path.removeprefix(f"{root}/"): store.cat_file(path)
        for path in (store.find(root) if store.exists(root) else [])
    }


def test_a_release_appears_whole_beside_its_listing(place: str, tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", place)
    refuse_taken_place(run, Settings(place))
    assert copy_release(run, place)

    stored = contents(place)
    listing = json.loads(stored["topdown.json"])
    assert listing == describe_release(run)
    assert listing["run_id"] == run.read_manifest()["run_id"]
    files = {f"{listing['folder']}/{file['name']}": file for file in listing["files"]}
    assert set(stored) == {"topdown.json", *files}
    assert {file["name"] for file in files.values()} == {"mdf_persons.csv", "pl94171/geo.csv"}
    assert all(len(stored[name]) == file["size"] for name, file in files.items())
    assert b"confidential" not in b"".join(stored.values())
    assert marker_address(place, "topdown") == f"{place}/topdown.json"


def test_a_release_is_not_replaced(place: str, tmp_path: Path) -> None:
    first = finished_run(tmp_path / "first", place)
    copy_release(first, place)
    before = contents(place)
    second = finished_run(tmp_path / "second", place, rows="3|4\n")
    with pytest.raises(PublicationRefused, match=first.read_manifest()["run_id"]):
        copy_release(second, place)
    assert contents(place) == before

    unfinished = RunDirectory(tmp_path / "third")
    with pytest.raises(InputRefused, match="releases are not replaced"):
        refuse_taken_place(unfinished, Settings(place))


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(InputRefused, match="publish_to: .*/file/out cannot be written"):
        refuse_taken_place(run, Settings(str(tmp_path / "file" / "out")))

    def shut(*_arguments: object, **_named: object) -> None:
        raise PermissionError(13, "secret of the store")

    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "pipe_file", shut)
    with pytest.raises(InputRefused, match="does not let this user in") as refused:
        refuse_taken_place(run, Settings(f"memory://{tmp_path.name}/shut"))
    assert "secret" not in str(refused.value)


def test_an_altered_release_of_the_same_run_is_not_published_over_it(
    place: str, tmp_path: Path
) -> None:
    run = finished_run(tmp_path / "run", place)
    copy_release(run, place)
    (run.release / "mdf_persons.csv").write_text("altered\n")
    with pytest.raises(PublicationRefused, match="releases are not replaced"):
        copy_release(run, place)


def test_a_copy_that_broke_off_is_finished_unseen_until_then(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path / "run", place)
    kind = publication.Prefix if place.startswith("memory") else publication.Folder
    whole = kind.put

    def broken(self, name: str, file: Path) -> None:
        if file.name == "geo.csv":
            raise StorageFailed("the disk is full")
        whole(self, name, file)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", broken)
        with pytest.raises(StorageFailed):
            copy_release(run, place)
    assert "topdown.json" not in contents(place)
    assert copy_release(run, place)
    assert set(contents(place)) == {
        "topdown.json",
        *(f"{describe_release(run)['folder']}/{f['name']}" for f in describe_release(run)["files"]),
    }


def test_of_runs_that_publish_at_once_one_does(tmp_path: Path) -> None:
    place = str(tmp_path / "published")
    runs = [finished_run(tmp_path / f"run{i}", place, rows=f"{i}\n") for i in range(8)]
    outcomes: dict[int, object] = {}
    ready = threading.Barrier(len(runs))

    def publish(i: int) -> None:
        ready.wait()
        try:
            outcomes[i] = copy_release(runs[i], place)
        except PublicationRefused as error:
            outcomes[i] = error

    threads = [threading.Thread(target=publish, args=(i,)) for i in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    published = [i for i, outcome in outcomes.items() if outcome is True]
    assert len(published) == 1
    assert json.loads(contents(place)["topdown.json"]) == describe_release(runs[published[0]])
