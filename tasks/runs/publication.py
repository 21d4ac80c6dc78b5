"""Copying a finished release to a folder or an object store, so that it appears there whole.

Files go first, into a folder named by the run and by a digest of their contents. The last file is
`<product>.json`, which names that folder and lists its files with sizes and digests. It is put on
condition that it does not exist yet. Readers begin with it, so that they find a whole release or
none; of two runs that publish to one place, the second is refused, and repeating a publication
changes nothing. Only the files of the run's `release/` leave the run directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .directory import RunDirectory
from .errors import InputRefused, SpineflowError
from .files import discard_unfinished, sha256_of_file, write_once
from .settings import ProductSettings
from .stores import StoreRefused, is_url, store_errors

TRIAL = b"A run of Spineflow has tried whether it can publish here; this can be removed.\n"
"""Contents of an object written to test a place."""


class PublicationRefused(SpineflowError):
    """The place refuses the release, which stays in the run directory."""


@dataclass(frozen=True)
class Folder:
    """A folder of this machine or of a shared file system."""

    root: Path

    def read(self, name: str) -> bytes | None:
        """Content of a file, None if it does not exist; removes leftovers of killed writers."""
        discard_unfinished(self.root / name)
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, file: Path) -> None:
        """Copy a file to a name atomically; the name has this file already, or does not exist."""

        def copy(target: BinaryIO) -> None:
            with file.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 24)

        write_once(self.root / name, copy)

    def put_once(self, name: str, content: bytes) -> bytes:
        """Write a file unless it exists; returns its present content."""
        return write_once(self.root / name, lambda file: file.write(content)).read_bytes()

    def try_writing(self, name: str) -> None:
        """Write a file and remove it, in the folder or in its nearest existing parent."""
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        trial = there / name
        try:
            trial.touch(exist_ok=False)
        finally:
            trial.unlink(missing_ok=True)


@dataclass(frozen=True)
class Prefix:
    """The objects of a store whose keys begin with `root`; `store` is an fsspec file system."""

    url: str
    root: str
    store: Any

    def read(self, name: str) -> bytes | None:
        """Content of an object; None if it does not exist."""
        try:
            with store_errors(self.url, self.url):
                return self.store.cat_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return None

    def put(self, name: str, file: Path) -> None:
        """Copy a file; objects appear whole."""
        with store_errors(self.url, self.url):
            self.store.put_file(str(file), f"{self.root}/{name}")

    def put_once(self, name: str, content: bytes) -> bytes:
        """Write an object unless it exists, as one request; returns its present content."""
        try:
            with store_errors(self.url, self.url):
                self.store.pipe_file(f"{self.root}/{name}", content, mode="create")
        except FileNotFoundError:
            raise
        except (FileExistsError, SpineflowError):
            # Stores report a failed condition in several ways; the present content decides.
            if (standing := self.read(name)) is None:
                raise
            return standing
        return self.read(name) or b""

    def try_writing(self, name: str) -> None:
        """Write an object; it is removed where this user may remove objects."""
        with store_errors(self.url, self.url):
            self.store.pipe_file(f"{self.root}/{name}", TRIAL)
        with suppress(SpineflowError, OSError), store_errors(self.url, self.url):
            self.store.rm_file(f"{self.root}/{name}")


def marker_address(place: str, product: str) -> str:
    """Address of the file with which readers of a product's release begin."""
    return f"{place.rstrip('/')}/{_marker_name(product)}"


def refuse_taken_place(run: RunDirectory, settings: ProductSettings) -> None:
    """Raise InputRefused if this run's release cannot be copied to its place in the settings.

    Called before a run begins, so that no budget is spent on a release without a place: the place
    may have another run's release, or may not be writable. Raises StoreSilent for a store that
    does not answer.
    """
    place = settings.published_to
    if place is None or run.release.exists():
        return
    marker = _marker_name(settings.PRODUCT)
    try:
        opened = _open_place(place)
        standing = opened.read(marker)
        if standing is None:
            opened.try_writing(f".{marker}.{secrets.token_hex(8)}.trial")
            return
    except FileNotFoundError:
        raise InputRefused(
            f"release.publish_to: {place} does not exist; create its bucket or folder."
        ) from None
    except OSError as error:
        raise InputRefused(
            f"release.publish_to: {place} cannot be written "
            f"({os.strerror(error.errno) if error.errno else type(error).__name__}); make it "
            "writable, or choose another place."
        ) from None
    run_id = run.read_manifest()["run_id"] if run.manifest.exists() else None
    if _describe_listing(standing)["run_id"] != run_id:
        raise InputRefused(_taken_message(standing, settings.PRODUCT, place))


def copy_release(run: RunDirectory, place: str) -> bool:
    """Copy the release of a run to a place; False if the place has it already.

    Raises PublicationRefused if the place holds another release, does not exist or refuses access,
    StorageFailed if the store does not answer.
    """
    listing = describe_release(run)
    marker = _marker_name(listing["product"])
    again = f"continue with 'spineflow resume {run.root}'"
    try:
        opened = _open_place(place)
        standing = opened.read(marker)
        is_new = standing is None
        if standing is None:
            for file in listing["files"]:
                opened.put(f"{listing['folder']}/{file['name']}", run.release / file["name"])
            content = json.dumps(listing, indent=2) + "\n"
            standing = opened.put_once(marker, content.encode())
    except FileNotFoundError:
        raise PublicationRefused(
            f"{place} does not exist; create its bucket or folder and {again}."
        ) from None
    except StoreRefused as error:
        raise PublicationRefused(f"{place}: {error.rule}; {error.remedy} and {again}.") from None
    if _describe_listing(standing)["folder"] != listing["folder"]:
        raise PublicationRefused(_taken_message(standing, listing["product"], place))
    return is_new


def describe_release(run: RunDirectory) -> dict[str, Any]:
    """Public listing of a run's published release: run, folder and files."""
    manifest = run.read_manifest()
    files = [
        {
            "name": path.relative_to(run.release).as_posix(),
            "size": path.stat().st_size,
            "sha256": sha256_of_file(path),
        }
        for path in sorted(run.release.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    facts = ("run_id", "product", "privacy", "settings_digest", "code_version")
    return {
        **{name: manifest[name] for name in facts},
        "folder": f"{manifest['product']}-{manifest['run_id']}-{digest[:16]}",
        "files": files,
    }


def _open_place(place: str) -> Folder | Prefix:
    if not is_url(place):
        return Folder(Path(place))
    with store_errors(place, place):
        import fsspec  # Slow to import, and most releases stay where they are.

        store, root = fsspec.core.url_to_fs(place, use_listings_cache=False)
    if "file" in store.protocol:
        return Folder(Path(root))
    return Prefix(place, root.rstrip("/"), store)


def _marker_name(product: str) -> str:
    return f"{product}.json"


def _describe_listing(standing: bytes) -> dict[str, Any]:
    """The listing found at a place; a placeholder if it cannot be read."""
    try:
        listing = json.loads(standing)
        return {"run_id": listing["run_id"], "folder": listing["folder"]}
    except (ValueError, KeyError, TypeError):
        return {"run_id": "that cannot be read", "folder": ""}


def _taken_message(standing: bytes, product: str, place: str) -> str:
    """Message: a place has another release."""
    return (
        f"{marker_address(place, product)} is the release of run "
        f"{_describe_listing(standing)['run_id']}, and releases are not replaced; move it away, or "
        "start a new run with another release.publish_to."
    )
