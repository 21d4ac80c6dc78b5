"""Inputs and releases on an object store: an S3 server on this machine, through the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.publication import Prefix, describe_release

pytest.importorskip("moto", reason="needs moto's S3 server: install the extra 'test'")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs: install the extra 'test'")

SECRET = "the-secret-of-these-tests"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key-of-these-tests",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A running S3 server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[s3fs.S3FileSystem]:
    """The empty server as a file system, with credentials in the environment only."""
    for name, value in (
        ENVIRONMENT | {"AWS_ENDPOINT_URL": endpoint, "HOME": str(tmp_path)}
    ).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    yield store
    store.rm("bucket", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def write_settings(folder: Path, *, tables: str = "s3://bucket/in", more: str = "") -> Path:
    path = folder / "settings.toml"
    path.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{tables}/persons.parquet"\n'
        f'units = "{tables}/units.parquet"\ngeography = "{tables}/grfc.txt"\n'
        f'[privacy]\ndataset = "county"\nledger = "ledger.db"\n{more}'
    )
    return path


def upload(store: s3fs.S3FileSystem, county: Path) -> None:
    for name in ("persons.parquet", "units.parquet", "grfc.txt"):
        store.put_file(str(county / name), f"bucket/in/{name}")


@pytest.mark.slow
@pytest.mark.usefixtures("in_process", "uncompared")
def test_a_run_from_store_to_store(s3, smallest_county: Path, tmp_path: Path, capsys) -> None:
    upload(s3, smallest_county)
    more = '[release]\nmargins = false\ntables = false\npublish_to = "s3://bucket/out"\n'
    settings = write_settings(tmp_path, more=more)
    run = RunDirectory(tmp_path / "run")
    command = ["run", "topdown", str(settings), "--run-dir", str(run.root)]
    assert main(command) == 0, capsys.readouterr().err
    assert "published: s3://bucket/out/topdown.json" in capsys.readouterr().out

    s3.invalidate_cache()
    listing = json.loads(s3.cat_file("bucket/out/topdown.json"))
    assert listing == describe_release(run)
    names = {file["name"] for file in listing["files"]}
    assert {"mdf_persons.parquet", "mdf_units.csv", "certificate.html"} <= names
    for name in names:
        stored = s3.cat_file(f"bucket/out/{listing['folder']}/{name}")
        assert stored == (run.release / name).read_bytes()
    assert len(s3.find("bucket/out")) == len(names) + 1
    manifest = run.read_manifest()
    assert manifest["status"] == "complete"
    assert set(manifest["stages"]["publication"]["digests"]) == {"s3://bucket/out/topdown.json"}
    for path in run.root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()

    assert main(["resume", str(run.root)]) == 0
    assert json.loads(s3.cat_file("bucket/out/topdown.json")) == listing

    other = ["run", "topdown", str(settings), "--run-dir", str(tmp_path / "other")]
    assert main(other) == 2
    refusal = capsys.readouterr().err
    assert f"is the release of run {listing['run_id']}, and releases are not replaced" in refusal
    assert not (tmp_path / "other" / "manifest.json").exists()


@pytest.mark.soak(4)
@pytest.mark.usefixtures("in_process", "uncompared")
def test_a_release_whose_bucket_vanished_waits_in_the_run_directory(
    s3, smallest_county: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prefix, "try_writing", lambda place, name: None)
    more = '[run]\nuniverses = ["units"]\n[release]\nmargins = false\ntables = false\n'
    more += 'publish_to = "s3://to-be-made/out"\n'
    settings = write_settings(tmp_path, tables=str(smallest_county), more=more)
    run = RunDirectory(tmp_path / "run")
    assert main(["run", "topdown", str(settings), "--run-dir", str(run.root)]) == 1
    error = capsys.readouterr().err
    assert "s3://to-be-made/out does not exist; create its bucket" in error
    assert run.release.exists()
    assert run.read_manifest()["status"] == "failed"
    s3.mkdir("to-be-made")
    assert main(["resume", str(run.root)]) == 0
    assert run.read_manifest()["status"] == "complete"
    assert s3.exists("to-be-made/out/topdown.json")
    s3.rm("to-be-made", recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("bucket", ["bucket", "nobody"])
def test_tables_that_are_not_there(s3, bucket: str, smallest_county, tmp_path, capsys) -> None:
    path = f"s3://{bucket}/in/persons.parquet"
    settings = write_settings(tmp_path, tables=str(smallest_county))
    assert main(["check", "topdown", str(settings), "--set", f"input.persons={path}"]) == 2
    assert f"persons.parquet: there is no object {path};" in capsys.readouterr().err
