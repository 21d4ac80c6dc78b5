"""Addresses of object stores, and what is said when a store fails."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from spineflow.tasks.runs.errors import InputRefused, SpineflowError, StorageFailed
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.runs.stores import StoreFile, StoreRefused, carries_secrets, store_errors
from spineflow.tasks.topdown.settings import TopdownSettings

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{SECRET}@bucket/persons.parquet",
        f"https://{SECRET}@host/persons.parquet",
        f"https://host/persons.parquet?X-Amz-Signature={SECRET}",
        f"simplecache::s3://key:{SECRET}@bucket/persons.parquet",
    ],
)
def test_secrets_in_an_address_are_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    assert carries_secrets(url)
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f'[input]\npersons = "{url}"\nunits = "u"\ngeography = "g"\n[privacy]\ndataset = "d"\n'
    )
    presets = Path(__file__).resolve().parents[3] / "flows" / "settings"
    overrides = ['preset="pl94_2020_us"']
    with pytest.raises(InputRefused, match=r"input\.persons holds a user, a password") as refused:
        load_settings(TopdownSettings, settings, presets=presets, overrides=overrides)
    assert SECRET not in str(refused.value)


class NoCredentialsError(Exception):
    """As botocore's."""


class HttpError(Exception):
    """As gcsfs'."""

    code = 401


class ClientAuthenticationError(Exception):
    """As Azure's."""


class EndpointConnectionError(Exception):
    """As botocore's."""


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (PermissionError(SECRET), StoreRefused, "does not let this user in; give credentials"),
        (NoCredentialsError(SECRET), StoreRefused, "does not let this user in"),
        (HttpError(SECRET), StoreRefused, "does not let this user in"),
        (ClientAuthenticationError(SECRET), StoreRefused, "does not let this user in"),
        (OSError(f"Forbidden: {SECRET}"), StoreRefused, "does not let this user in"),
        (ImportError(SECRET), StoreRefused, r"install spineflow\[gs\]"),
        (ValueError(SECRET), StoreRefused, "the address cannot be opened"),
        (EndpointConnectionError(SECRET), StorageFailed, r"not answer \(EndpointConnectionError\)"),
        (TimeoutError(SECRET), StorageFailed, r"not answer \(TimeoutError\)"),
    ],
)
def test_what_stores_say_stays_unsaid(error: Exception, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words) as said, store_errors("gs://bucket/a", "the table"):
        raise error
    assert isinstance(said.value, SpineflowError)
    assert str(said.value).startswith("the table: ")
    assert SECRET not in str(said.value)
    assert said.value.__suppress_context__


def test_a_store_that_breaks_off_while_it_is_read() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/stores/table", b"abc")
    with StoreFile("memory://stores/table", "the table") as file:
        assert (file.read(2), file.tell(), file.seek(0), file.read()) == (b"ab", 2, 0, b"abc")
        file._file.close()
        file._file = _Broken()
        with pytest.raises(StorageFailed, match="does not answer"):
            file.read(1)


class _Broken:
    def read(self, size: int) -> bytes:
        raise ConnectionResetError(SECRET)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", [StoreRefused, StorageFailed])
def test_errors_cross_from_one_process_to_another(kind: type[SpineflowError]) -> None:
    parts = ("persons.parquet", "nothing here reads it", "install it")
    error = kind(*(parts if kind is StoreRefused else parts[:1]))
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is kind
    assert str(received) == str(error)
    assert vars(received) == vars(error)
