"""Detect changed run files; remove files that can be rebuilt, report the rest.

The manifest has the digests of the public files of a run: for each stage, of the artifacts that its
steps return, and under `beside` of all further files. When a run is continued, or its completion is
checked, its files are compared with them. Confidential files have no digests there: measured files
are compared with the ledger.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .directory import CHARGED, DERIVED, RunDirectory, code_version, refuse_altered
from .errors import BudgetRefused, InputRefused, SpineflowError
from .files import NOT_PRIVATE, TEMPORARY_SUFFIX, digests_of

RELEASE, UNCHECKED, MEASUREMENTS = "release", "release-unchecked", "measurements"
CHECKS = "validation/checks.json"

OF_OTHERS = "estimate"
"""The product that reads measurements published by others, unknown to the run's ledger."""

RECORDED = (
    *(name for name in DERIVED if name not in ("intervals", CHECKS)),
    "spine",
    "hierarchy",
    "parameters",
    MEASUREMENTS,
)
"""The folders whose files have digests in the manifest."""


class ReleaseAltered(SpineflowError):
    """Released files of a finished run differ from the checked ones."""


@dataclass(frozen=True)
class Damage:
    """A missing or changed file of a run, by its name in the run."""

    name: str
    is_missing: bool

    def __str__(self) -> str:
        what = "is missing" if self.is_missing else "was altered since the run made it"
        return f"{self.name} {what}"

    @property
    def within(self) -> tuple[str, ...]:
        """The folders that it is in, and its own name."""
        return PurePosixPath(self.name).parts


def record_files(run: RunDirectory) -> None:
    """Enter in the manifest the digests of the public files that no stage has returned.

    Published noise of a private run that was killed is known to the ledger until the run
    is done: it may have been altered since, and is compared with the ledger after the first stages.
    """
    manifest = run.read_manifest()
    names = sorted(set(_files(run)) - _artifact_digests(manifest).keys())
    is_charged = manifest["privacy"] != NOT_PRIVATE and manifest["product"] != OF_OTHERS
    if is_charged and not run.release.exists():
        names = [name for name in names if not _is_noise(Damage(name, is_missing=False))]
    found = digests_of([run.root / name for name in names])
    beside = {name: digest for name, digest in zip(names, found, strict=True) if digest is not None}
    if beside != manifest.get("beside"):
        run.update_manifest(beside=beside)


def record_anew(run: RunDirectory, folder: str) -> None:
    """Replace the digests of the files in a folder that were rewritten on purpose."""
    manifest = run.read_manifest()
    names = [name for name in _files(run) if name.startswith(f"{folder}/")]
    now = dict(zip(names, digests_of(run.root / name for name in names), strict=True))
    for stage in manifest["stages"].values():
        stage["digests"] |= {name: now.pop(name) for name in stage["digests"] if name in now}
    run.update_manifest(stages=manifest["stages"], beside=manifest.get("beside", {}) | now)


def mend(run: RunDirectory) -> list[str]:
    """Remove damaged files that a continued run makes again; return sentences about them.

    Raises InputRefused for changed settings, spine, plan or parameters, BudgetRefused for
    measurements that differ from the published ones, which are never drawn again, and
    ReleaseAltered for a release that differs from the checked one.
    """
    run.refuse_altered_manifest()
    run.refuse_edited_settings()
    manifest = run.read_manifest()
    recorded = manifest.get("beside", {}) | _artifact_digests(manifest)
    sentences = []
    if recorded.get(CHARGED) not in (None, *digests_of([run.root / CHARGED])):
        # The ledger has the same.
        (run.root / CHARGED).unlink(missing_ok=True)
        sentences.append(f"{Damage(CHARGED, is_missing=False)}, and is removed")
    refuse_altered(run)
    found = find_damage(run, recorded)
    if manifest["privacy"] != NOT_PRIVATE:
        # The step that looks for missing noise asks the ledger whether it was published.
        found = [damage for damage in found if not (damage.is_missing and _is_noise(damage))]
    for damage in found:
        if not _can_be_made_again(run, damage):
            _refuse(run, damage, manifest)
    for damage in found:
        _remove_damaged(run, damage, is_handed_on=damage.name in _artifact_digests(manifest))
        sentences.append(f"{damage}, and is made again")
    return sentences


def is_needed(name: str) -> bool:
    """Whether a run needs a public file; earlier versions recorded pages on the input as well."""
    return name == CHECKS or not (name.startswith("validation/") or name == CHARGED)


def find_damage(run: RunDirectory, recorded: Mapping[str, str]) -> list[Damage]:
    """The missing or changed files, among all with a digest in the run."""
    other = UNCHECKED if run.release.exists() else RELEASE
    names = [name for name in recorded if is_needed(name) and not name.startswith(f"{other}/")]
    found = digests_of([run.root / name for name in names])
    return [
        Damage(name, digest is None)
        for name, digest in zip(names, found, strict=True)
        if digest != recorded[name]
    ]


def _artifact_digests(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the artifacts that the steps of finished stages returned, by name."""
    return {
        name: digest
        for stage in manifest["stages"].values()
        for name, digest in stage["digests"].items()
        if digest and name.startswith((*(f"{folder}/" for folder in RECORDED), CHECKS))
    }


def _files(run: RunDirectory) -> Iterator[str]:
    # Other files in `intervals` were made on request.
    recorded = [run.root / folder for folder in RECORDED]
    for folder in [*recorded, *run.root.glob("intervals/*/summary")]:
        for place, _, names in os.walk(folder):
            within = Path(place).relative_to(run.root).as_posix()
            yield from (f"{within}/{name}" for name in names if not name.endswith(TEMPORARY_SUFFIX))


def _is_noise(damage: Damage) -> bool:
    """Whether a file has noisy measurements; the constraints with them are exact."""
    return damage.within[0] == MEASUREMENTS and "constraints" not in damage.within


def _can_be_made_again(run: RunDirectory, damage: Damage) -> bool:
    """Whether continuing the run makes a file that is not there, without drawing noise.

    A finished run is left unchanged by another version of the code, which might make another file.
    Published measurements of another run are read again, and those of a run that is not private
    are equal when drawn again: a seed fixes their noise, or they are without noise.
    """
    first = damage.within[0]
    if _is_noise(damage):
        return damage.is_missing or run.read_manifest()["product"] == OF_OTHERS
    if run.release.exists():
        is_same_code = run.read_manifest()["code_version"] == code_version()
        if damage.name == CHECKS or first == RELEASE or not (first == "report" or is_same_code):
            return False
    is_charged = (run.root / CHARGED).exists()
    if damage.is_missing and not is_charged:
        return True
    is_beside = bool({"constraints", "summary"} & {*damage.within})
    return first in DERIVED or damage.name == CHECKS or is_beside


def _remove_damaged(run: RunDirectory, damage: Damage, *, is_handed_on: bool) -> None:
    """Remove a damaged file, and the file by which its step would count as done."""
    path, (first, *rest) = run.root / damage.name, damage.within
    path.unlink(missing_ok=True)
    if "summary" in rest:
        # All of its files, and with them the folder, may be missing.
        shutil.rmtree(path.parent, ignore_errors=True)
    elif (first, rest[0]) == ("evidence", "found") and not is_handed_on:
        # The accuracy of a release, which is computed when it is made.
        shutil.rmtree(run.root.joinpath(first, "published", rest[1]), ignore_errors=True)
    elif first == "spine" and len(rest) > 1:
        # The last file that its step writes; the step writes all of them again.
        (path.parent / "shards.parquet").unlink(missing_ok=True)
    elif first == "solves":
        run.root.joinpath("estimates", *rest).unlink(missing_ok=True)
    elif first == "estimates" and not is_handed_on:
        shutil.rmtree(run.root / first / rest[0], ignore_errors=True)
    elif first == "report":
        run.report.unlink(missing_ok=True)
    elif first in DERIVED and not is_handed_on:
        shutil.rmtree(run.root / first, ignore_errors=True)


def _refuse(run: RunDirectory, damage: Damage, manifest: Mapping[str, Any]) -> None:
    if damage.within[0] == MEASUREMENTS:
        raise BudgetRefused(
            f"{damage}; restore the measurement that run {manifest['run_id']} has published, or "
            "start a new run, since it is never drawn again"
        )
    if run.release.exists() and (damage.within[0] in DERIVED or damage.name == CHECKS):
        raise ReleaseAltered(
            f"{run.root / damage.name}{str(damage).removeprefix(damage.name)}; put it back, or "
            f"remove {run.release} and resume the run, which makes the release again from its "
            "measurements"
        )
    raise InputRefused(
        f"{run.root / damage.name}{str(damage).removeprefix(damage.name)}; put it back, or start a "
        "new run"
    )
