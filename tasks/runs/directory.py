"""The run directory: the paths of a run's artifacts, the manifest that describes them, and the
record of its work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from .errors import InputRefused, SpineflowError
from .files import (
    NOT_PRIVATE,
    STAMP_FILE,
    TEMPORARY_SUFFIX,
    digest_of,
    digests_of,
    discard_all_unfinished,
    remove_temporaries,
    write_record,
    write_text,
)
from .handles import Artifact
from .names import below

DERIVED = (
    "dataset",
    "trials",
    "evidence",
    "combined",
    "intervals",
    "losses",
    "estimates",
    "solves",
    "release",
    "release-unchecked",
    "pieces",
    "validation/checks.json",
    "report",
)
"""Entries that can be made again from measurements, invariants and public input or geography."""

INGEST = "ingest"
"""The stage whose facts are the digests of the input."""

LEDGER = "ledger"
"""The stage that charges; noise is drawn after it."""

LOCK = ".lock"
"""File that is locked while a process works on the run; it names that process."""

ONLY_SHARD = "00000"
"""Name of the only shard of an artifact in one piece."""

IDENTITY = ".identity"
"""File that distinguishes a run's directory from its copies; written once and never changed."""

RELEASE_STAGES = ("intervals", "release-unchecked", "pieces", "validation/checks.json", "report")
"""Entries made again if the settings of a release change before its publication."""

RELEASE_CHANGED = "release"
"""Key of a manifest with the settings of the release, if they changed after the run began."""

OWN_DIGEST = "digest"
"""Key of a manifest with the digest of all the rest."""

CHARGED = "spine/charged.json"
"""File of a run that has the digests that it was charged with."""

_FIRST_ENTRIES = (LOCK, IDENTITY, "confidential", "settings.toml", STAMP_FILE)
"""Entries that a run may leave if it is killed before its manifest is written."""


@dataclass(frozen=True)
class RunDirectory:
    """Paths of the artifacts of a run; docs/run_directory.md describes the layout."""

    root: Path

    @property
    def manifest(self) -> Path:
        """Run id, digests, code version and the status of every stage."""
        return self.root / "manifest.json"

    @property
    def settings(self) -> Path:
        """The merged settings, frozen at the start."""
        return self.root / "settings.toml"

    @property
    def confidential(self) -> Path:
        """Folder of mode 0700 for everything that must not be released."""
        return self.root / "confidential"

    @property
    def release(self) -> Path:
        """The folder of the release; it exists once every check has passed."""
        return self.root / "release"

    @property
    def report(self) -> Path:
        """The public report."""
        return self.root / "report" / "report.html"

    @property
    def unchecked_release(self) -> Path:
        """Where the release is prepared before the checks."""
        return self.root / "release-unchecked"

    def piece(self, subject: str, number: int, of: int) -> Path:
        """Folder of a piece of a file of the release, until all are concatenated."""
        return self.root / "pieces" / subject / f"{number}-of-{of}"

    @property
    def checks(self) -> Path:
        """Folder of the public outcomes of rules and checks."""
        return self.root / "validation"

    @property
    def outcomes(self) -> Path:
        """Public outcome of every check of the result."""
        return self.checks / "checks.json"

    def unrecorded(self, path: Path) -> Path:
        """Folder in `confidential/` for a measurement file until the ledger has recorded it."""
        return self.confidential / "unrecorded" / path.relative_to(self.root).parent

    def histogram(self, universe: str) -> Path:
        """The confidential block histograms of a universe."""
        return below(self.confidential / "histograms", f"{universe}.parquet")

    def measurements(self, universe: str, geolevel: str) -> Path:
        """Folder of the noisy measurements and constraints at a geolevel."""
        return below(self.root / "measurements", universe, geolevel)

    def dpqueries(self, universe: str, geolevel: str, shard: str = ONLY_SHARD) -> Path:
        """Noisy measurements of one shard of geounits, or of a geolevel that is not cut."""
        return below(self.measurements(universe, geolevel) / "dpqueries", f"{shard}.parquet")

    def estimates(self, universe: str, geolevel: str, shard: str = ONLY_SHARD) -> Path:
        """Estimates of one shard of geounits, or of a geolevel that is not cut."""
        return below(self.root / "estimates", universe, geolevel, f"{shard}.parquet")

    def refuse_edited_settings(self) -> None:
        """Raise InputRefused if the frozen settings have been edited since the run began."""
        digest = digest_of(self.settings) if self.settings.exists() else None
        if digest != self.read_manifest()["settings_digest"]:
            fault = "is missing" if digest is None else "has been edited since the run began"
            raise InputRefused(f"{self.settings} {fault}; put it back, or start a new run.")

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; raises InputRefused if it is missing or unreadable."""
        try:
            return json.loads(self.manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            was_begun = (self.root / IDENTITY).exists()
            remedy = "restore it, or start a new run" if was_begun else "check the path"
            raise InputRefused(
                f"{self.root} holds no run (there is no manifest.json); {remedy}."
            ) from None
        except (ValueError, RecursionError, OSError):
            raise InputRefused(
                f"{self.manifest} cannot be read; restore it, or start a new run."
            ) from None

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest in one step."""
        write_record(self.manifest, {**manifest, OWN_DIGEST: _digest_of_facts(manifest)})

    def refuse_altered_manifest(self) -> None:
        """Raise InputRefused if the manifest differs from its own digest; it may have none."""
        manifest = self.read_manifest()
        digest = _digest_of_facts(manifest)
        if manifest.get(OWN_DIGEST, digest) != digest:
            raise InputRefused(f"{self.manifest} was altered; restore it, or start a new run.")

    def update_manifest(self, **facts: Any) -> None:
        """Set top-level facts; the caller holds the lock."""
        self.write_manifest({**self.read_manifest(), **facts})

    def record_stages(
        self, stages: Mapping[str, Sequence[Artifact]], order: Sequence[str] = ()
    ) -> None:
        """Enter finished stages with digests of their artifacts and seconds of work. Stages in
        `order` follow all others, in this order."""
        manifest = self.read_manifest()
        for stage, artifacts in stages.items():
            known = manifest["stages"].get(stage, {})
            reused = all(artifact.reused for artifact in artifacts)
            manifest["stages"][stage] = {
                "status": "complete",
                "seconds": known.get("seconds")
                if reused and known
                else round(sum(artifact.seconds for artifact in artifacts), 3),
                "digests": {artifact.path: artifact.digest for artifact in artifacts},
            }
        entered = manifest["stages"]
        names = sorted(entered, key=lambda name: order.index(name) if name in order else -1)
        manifest["stages"] = {name: entered[name] for name in names}
        self.write_manifest(manifest)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for this process; the system frees the lock of a process that died.

        The lock file names its last owner. Raises SpineflowError if another process holds it.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            stream = (self.root / LOCK).open("a+b", buffering=0)
        except OSError as error:
            raise SpineflowError(
                f"The run directory {self.root} cannot be written ({error.strerror}); make it "
                "writable, or choose another --run-dir."
            ) from None
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.seek(0)
                owner = stream.read().decode("utf-8", "replace").strip() or "another process"
                raise SpineflowError(
                    f"{self.root} is in use by {owner}; wait for it or choose another run "
                    "directory."
                ) from None
            except OSError as error:
                raise SpineflowError(
                    f"The file system of {self.root} has no locks ({error.strerror}); choose a "
                    "run directory on one that has."
                ) from None
            since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            owner = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
            with suppress(OSError):  # The lock is valid even if a full disk prevents this.
                stream.truncate(0)
                stream.write(owner.encode())
            yield


def refuse_odd_name(run: RunDirectory) -> None:
    """Raise InputRefused for a folder whose name is not UTF-8: no message could contain it."""
    try:
        str(run.root).encode()
    except UnicodeEncodeError:
        raise InputRefused(
            f"The name of the run directory {ascii(str(run.root))} is not UTF-8; rename it, or "
            "choose another --run-dir."
        ) from None


def refuse_other_folders(run: RunDirectory) -> None:
    """Raise InputRefused for a folder with contents other than a run."""
    if run.manifest.exists() or not run.root.is_dir():
        return
    if not all(_may_be_left(entry.name) for entry in run.root.iterdir()):
        raise InputRefused(
            f"{run.root} is not empty and holds no run; restore {run.manifest.name}, or choose "
            "another --run-dir."
        )


def start_run(
    run: RunDirectory, *, product: str, settings_text: str, stamp: str | None = None
) -> None:
    """Create a run directory, or continue one with the same settings.

    If an unfinished run was begun by another version of the code, its derived files are made again;
    measurements are never drawn again, and a finished release is left unchanged. `stamp` is the
    sentence that marks a run as not private, None for a private run. Raises InputRefused if the
    directory has a run with other settings or other contents.
    """
    digest, is_new = settings_digest(settings_text), not run.manifest.exists()
    if is_new:
        refuse_other_folders(run)
    else:
        run.refuse_altered_manifest()
        manifest = run.read_manifest()
        if manifest["settings_digest"] != digest or manifest["product"] != product:
            raise InputRefused(
                f"{run.root} holds a run with other settings; choose another --run-dir, or "
                "continue that run with 'spineflow resume'."
            )
    secure_confidential(run)
    make_identity(run)
    remove_temporaries(run.root)
    if is_new:
        write_text(run.settings, settings_text)
    _stamp(run, stamp)
    if is_new:
        manifest = {
            "run_id": f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}",
            "product": product,
            "privacy": "private" if stamp is None else NOT_PRIVATE,
            "settings_digest": digest,
            "input_digests": {},
            "code_version": code_version(),
            "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "status": "prepared",
            "stages": {},
        }
        run.write_manifest(manifest)
    elif not run.release.exists():
        if manifest["code_version"] != code_version():
            discard_stages(run)
        run.update_manifest(code_version=code_version(), status="prepared")


def _stamp(run: RunDirectory, stamp: str | None) -> None:
    """Write the stamp file of a run that is not private, unless it is in place."""
    path = run.root / STAMP_FILE
    if stamp is None or (path.is_file() and path.read_bytes() == f"{stamp}.\n".encode()):
        return
    write_text(path, f"{stamp}.\n")


def secure_confidential(run: RunDirectory) -> None:
    """Create the confidential folder of a run, or check its owner and close it to others.

    Raises InputRefused for a symbolic link, for a path that is no folder or belongs to another
    user, and, before the run has begun, for a folder that others can enter: another user may have
    made it, and may have it open.
    """
    folder = run.confidential
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise InputRefused(
            f"{folder} is not a folder of its own, but a link or a file; remove it, or choose "
            "another --run-dir."
        ) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise InputRefused(
                f"{folder} belongs to another user; run as its owner, or choose another --run-dir."
            )
        if status.st_mode & 0o077 and not run.manifest.exists():
            raise InputRefused(
                f"{folder} was there before the run and others can enter it; remove it, or choose "
                "another --run-dir."
            )
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def make_identity(run: RunDirectory) -> None:
    """Write the file that `identity_of` reads, unless it exists."""
    path = run.root / IDENTITY
    if not path.exists():
        write_text(path, f"{secrets.token_hex(16)}\n")


def identity_of(run: RunDirectory) -> str:
    """Identity of a run's directory, different for every copy and unchanged by renaming.

    It consists of the random text of the identity file and of properties that a copy loses: the
    inode numbers of the file and of the directory, and the time of the last change of the file's
    inode, which no program can set. A copy at block level, such as a snapshot of a whole file
    system, keeps all of them. Raises InputRefused if the file is missing.
    """
    path = run.root / IDENTITY
    try:
        status, text = path.stat(), path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        raise InputRefused(
            f"{path} is missing; continue the run with 'spineflow resume {run.root}'."
        ) from None
    return f"{text} {run.root.stat().st_ino} {status.st_ino} {status.st_ctime_ns}"


def remove_unfinished(run: RunDirectory) -> None:
    """Remove files that killed writers left under temporary names, which no reader has seen."""
    remove_temporaries(run.root)
    for folder in (run.root / "measurements", run.confidential / "unrecorded"):
        discard_all_unfinished(folder)


def _may_be_left(name: str) -> bool:
    """Whether a file or folder may be left over from a run killed before its manifest."""
    written = re.fullmatch(rf"(settings\.toml|manifest\.json)\.\w+{TEMPORARY_SUFFIX}", name)
    return name in _FIRST_ENTRIES or written is not None


def digests_by_name(run: RunDirectory, files: Iterable[Path]) -> dict[str, str]:
    """Digests of files of a run by name, its settings among them."""
    return {
        path.relative_to(run.root).as_posix(): digest_of(path)
        for path in sorted({run.settings, *files})
    }


def write_charged(run: RunDirectory, charged_files: Mapping[str, str]) -> None:
    """Keep in the run the digests that its draws were charged with."""
    write_record(run.root / CHARGED, dict(charged_files))


def refuse_altered(run: RunDirectory, charged_files: Mapping[str, str] | None = None) -> None:
    """Raise InputRefused if a file that decides the draws differs from the charged one.

    When a run is charged, the digests of its settings, its spine or tree, its plan and its
    parameters are entered in the ledger, and kept in the run as well, so that every step can
    compare its input without asking the ledger. Steps that draw, check or report compare with the
    ledger's own, `charged_files`, too. A run without a charge has none.
    """
    charged = _charged(run) if charged_files is None else charged_files
    paths = [below(run.root, *name.split("/")) for name in charged]
    for path, digest, wanted in zip(paths, digests_of(paths), charged.values(), strict=True):
        if digest != wanted:
            fault = (
                "is missing, and the run was charged with it"
                if digest is None
                else "has been edited since the run was charged"
            )
            raise InputRefused(f"{path} {fault}; put it back, or start a new run.")


def _charged(run: RunDirectory) -> dict[str, str]:
    file = run.root / CHARGED
    try:
        charged: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        for name in charged:
            below(run.root, *name.split("/"))
        return charged
    except FileNotFoundError:
        return {}
    except (ValueError, OSError):
        raise InputRefused(
            f"{file} cannot be read; remove it and resume the run, which makes it again from the "
            "ledger."
        ) from None


def discard_stages(run: RunDirectory, names: Sequence[str] = DERIVED) -> None:
    """Remove the files of `remove_derived`, and their stages from the manifest."""
    kept = {
        name: stage
        for name, stage in run.read_manifest()["stages"].items()
        if not any(
            Path(path).is_relative_to(derived) for path in stage["digests"] for derived in names
        )
    }
    # The manifest first: new files of the same names have other digests.
    run.update_manifest(stages=kept)
    remove_derived(run, names)


def remove_derived(run: RunDirectory, names: Sequence[str] = DERIVED) -> None:
    """Remove entries, by default all that can be made again without the input and without noise."""
    for name in names:
        shutil.rmtree(run.root / name, ignore_errors=True)
        with suppress(OSError):
            (run.root / name).unlink()


def _digest_of_facts(manifest: Mapping[str, Any]) -> str:
    facts = {name: fact for name, fact in manifest.items() if name != OWN_DIGEST}
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def settings_digest(text: str) -> str:
    """Digest that binds a run to its settings."""
    return hashlib.sha256(text.encode()).hexdigest()


SOURCES = ("*.py", "*_rules.toml", "presets/*", "layouts/*.sql")
"""Patterns of code: sources, and declarations that determine results."""


@cache
def code_version() -> str:
    """Hash of the sources of every package that decides a result."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for package in ("flows", "geography", "tasks", "validation"):
        folder = root / package
        for source in sorted(path for pattern in SOURCES for path in folder.rglob(pattern)):
            digest.update(source.relative_to(root).as_posix().encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


WORK_FILE = "work.jsonl"
"""The public record of a run's work, a line for every task as soon as it has ended; a resumed run
adds to it. It has names of stages, numbers of geounits and timings, never a function of
confidential values."""


@dataclass(frozen=True)
class Task:
    """A task that has ended.

    name : step and keys, such as `measure persons Block 00003`; unique in a run.
    stage, step : the stage that it belongs to, and the step that it calls.
    ended : time when its end was reported, in seconds since 1970.
    started, seconds, cpu, worker, reused, path : as of its `Artifact`.
    after : stages and steps, as `kind` has them, whose tasks had to end before those of its own
        kind were started; those before them are left out.
    """

    name: str
    stage: str
    step: str
    ended: float
    started: float
    seconds: float
    cpu: float
    worker: str
    reused: bool
    path: str
    after: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """Its stage and step."""
        return f"{self.stage}: {self.step}"


def record_task(
    run: RunDirectory,
    stage: str,
    step: str,
    keys: Iterable[object],
    made: Artifact,
    after: Sequence[str] = (),
) -> None:
    """Add to the work of a run that the call of a step with keys has made an artifact, after those
    of other kinds; on a full disk, the run continues without it.
    """
    name, ended = " ".join([step, *map(str, keys)]), round(time.time(), 3)
    started = made.started or round(ended - made.seconds, 3)
    use = made.seconds, made.cpu, made.worker, made.reused, made.path
    line = f"{json.dumps(asdict(Task(name, stage, step, ended, started, *use, after)))}\n"
    with suppress(OSError), (run.root / WORK_FILE).open("ab+") as stream:
        # The last line of a killed process may be incomplete.
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read() == b"\n" else f"\n{line}"
        stream.write(line.encode())


def read_tasks(run: RunDirectory) -> dict[str, Task]:
    """The recorded tasks of a run by name: of each the call that did the work, the last that reused
    nothing. Incomplete lines are left out; earlier versions recorded more.
    """
    path, done = run.root / WORK_FILE, dict[str, Task]()
    names = {field.name for field in fields(Task)}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            known = json.loads(line)
            task = Task(**{name: known[name] for name in names.intersection(known)})
            if not (task.reused and task.name in done):
                done[task.name] = task
    return done
