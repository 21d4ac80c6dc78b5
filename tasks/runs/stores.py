"""Object stores by fsspec URL: accepted addresses, and messages for failures.

Credentials come from where the protocol's package looks for them (environment, profile, role of
the machine), never from settings: those are frozen in the run directory. A store's answers may
quote addresses and identities, so the text of its errors is dropped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from .errors import InputRefused, StorageFailed

EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
}
"""Extra of this package that brings a protocol's fsspec package."""


class StoreSilent(StorageFailed):
    """A store does not answer, as stores sometimes do for minutes."""


class StoreRefused(InputRefused):
    """A store cannot be used at present: the account, or the installation, has to change.

    `rule` and `remedy` are the parts of the sentence.
    """

    def __init__(self, name: str, rule: str, remedy: str) -> None:
        super().__init__(f"{name}: {rule}; {remedy}.")
        self.name = name
        self.rule = rule
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[StoreRefused], tuple[str, str, str]]:
        """Errors travel between the processes of a run."""
        return type(self), (self.name, self.rule, self.remedy)


def is_url(path: str) -> bool:
    """True for an fsspec URL, False for a plain local path."""
    return "://" in path


def carries_secrets(url: str) -> bool:
    """Whether a URL holds a user, a password, or a query, as signed addresses do.

    >>> carries_secrets("s3://key:secret@bucket/persons.parquet")
    True
    >>> carries_secrets("abfs://container@account.dfs.core.windows.net/persons.parquet")
    False
    """
    for protocol, authority in re.findall(r"(\w+)://([^/]*)", url):
        user = authority.rpartition("@")[0]
        if ":" in user or (user and EXTRAS.get(protocol) != "abfs"):
            return True
    return "?" in url


@contextmanager
def store_errors(url: str, name: str) -> Iterator[None]:
    """Turn errors of a store in the block into the program's own; messages show `name`.

    FileNotFoundError, FileExistsError and IsADirectoryError are answers and pass. Raises
    StoreRefused where trying again would not help, StoreSilent where it may.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, IsADirectoryError):
        raise
    except ImportError:
        protocol = url.partition("://")[0]
        extra = EXTRAS.get(protocol)
        package = f"spineflow[{extra}]" if extra else "the fsspec package of its protocol"
        rule = f"nothing here reads {protocol} addresses"
        raise StoreRefused(name, rule, f"install {package}") from None
    except Exception as error:
        if _is_refusal(error):
            remedy = "give credentials with that permission in the environment"
            raise StoreRefused(name, "the store does not let this user in", remedy) from None
        if isinstance(error, ValueError):
            raise StoreRefused(
                name,
                "the address cannot be opened",
                "install the fsspec package of its protocol, or give its credentials in the "
                "environment",
            ) from None
        raise StoreSilent(
            f"{name}: the store does not answer ({type(error).__name__}); when it does, run the "
            "command again."
        ) from None


def _is_refusal(error: Exception) -> bool:
    """Whether an error is about credentials or permissions, in the words of each package."""
    status = str(getattr(error, "code", getattr(error, "status_code", "")))
    words = ("Credential", "Authentication", "Token")
    return (
        isinstance(error, PermissionError)
        or status in ("401", "403")
        or any(word in type(error).__name__ for word in words)
        or (isinstance(error, OSError) and str(error).startswith("Forbidden"))
    )


class StoreFile(io.RawIOBase):
    """A file of a store, open for reading, with the errors of `store_errors`."""

    def __init__(self, url: str, name: str) -> None:
        """Open a file at its first byte; FileNotFoundError if it does not exist."""
        self._where = (url, name)
        with store_errors(*self._where):
            import fsspec  # Slow to import, and most inputs are local.

            self._file: BinaryIO = fsspec.open(url, "rb").open()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all that is left if negative; empty at the end."""
        with store_errors(*self._where):
            return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file of the store."""
        if not self.closed:
            self._file.close()
        super().close()
