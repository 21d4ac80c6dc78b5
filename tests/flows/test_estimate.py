"""Releases from published measurements through the command, and the page that tells how."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.product import ESTIMATE, TOPDOWN

from tests.flows.in_process import judged_once, uncompared

pytestmark = pytest.mark.slow

SETTINGS = """\
preset = "{preset}"
[input]
persons = "{persons}"
units = "{units}"
geography = "{geography}"
[privacy]
dataset = "people"
ledger = "ledger.db"
[geography]
spine = "{spine}"
[run]
estimator = "{estimator}"
{release}"""


def same_release(one: RunDirectory, other: RunDirectory) -> bool:
    """Whether what a run would release has the bytes of another's release, which alone has
    certificates."""
    folders = (one.unchecked_release, other.release)
    files, released = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    )
    certificates = {Path(f"certificate.{ending}") for ending in ("html", "json", "md")}
    return files == released - certificates < released and all(
        (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in files
    )


WITHOUT_MARGINS = "[release]\nmargins = false\n"
BARE = f"{WITHOUT_MARGINS}tables = false\n"


def measured(
    folder: Path, tables: dict[str, Path], further: str = "", release: str = "", **choices: str
) -> RunDirectory:
    """A private run of topdown on these tables, up to its checks."""
    folder.mkdir()
    text = SETTINGS.format(**tables, **choices, release=release) + further
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    settings = TOPDOWN.load(folder / "settings.toml")
    run = prepare(settings, folder / "run")
    with judged_once(), uncompared():
        call_stages(run, settings, before="checks")
    return run


@pytest.mark.soak
@pytest.mark.parametrize(
    ("preset", "spine", "estimator"),
    [
        ("pl94_2020_us", "conventional", "topdown"),
        ("pl94_2020_us", "optimized", "full_information"),
        ("pl94_2020_us", "optimized", "topdown"),
        ("pl94_2020_us", "conventional", "full_information"),
        ("pl94_2020_us", "conventional", "block_by_block"),
        ("pl94_2020_us", "optimized", "block_by_block"),
        ("pl94_2020_pr", "optimized", "topdown"),
        ("pl94_2020_pr", "optimized", "full_information"),
    ],
)
def test_a_county_is_released_again_from_its_export(
    shared: Path, tmp_path: Path, preset: str, spine: str, estimator: str
) -> None:
    """Bristol County, persons and units, from an export and from the run's own folder."""
    data = shared / "data" / "ri2010_bristol_fixed_width"
    files = {"persons": "CEF20_PER.txt.gz", "units": "CEF20_UNIT.txt.gz", "geography": "GRFC.txt"}
    tables = {name: data / file for name, file in files.items()}
    choices = {"preset": preset, "spine": spine, "estimator": estimator}
    run = measured(tmp_path / "people", tables, release=WITHOUT_MARGINS, **choices)
    assert_released_again(run, tables["geography"], estimator, tmp_path, WITHOUT_MARGINS)


PURE = "".join(
    f'[budget.{universe}]\nmechanism = "discrete_laplace"\nepsilon = "{epsilon}"\n'
    for universe, epsilon in (("persons", 20), ("units", 4))
)


@pytest.mark.parametrize(
    ("preset", "spine", "estimator", "further"),
    [
        pytest.param("pl94_2020_us", "conventional", "block_by_block", "", marks=pytest.mark.soak),
        pytest.param("pl94_2020_us", "aian", "full_information", "", marks=pytest.mark.soak),
        pytest.param("pl94_2020_us", "optimized", "topdown", PURE, marks=pytest.mark.soak),
        ("pl94_2020_pr", "optimized", "topdown", ""),
    ],
    ids=["conventional", "aian", "pure", "puerto rico"],
)
def test_a_generated_county_is_released_again_from_its_export(
    smallest_county: Path, tmp_path: Path, preset: str, spine: str, estimator: str, further: str
) -> None:
    """Other spines and budgets; pure differential privacy also splits geounits by bypassing.

    Margins of pure differential privacy are made again as well. Other margins and tables, half of
    a run's time, are made again by the commands of the page and in `published.test_reading`.
    """
    tables = {name: smallest_county / f"{name}.parquet" for name in ("persons", "units")}
    tables["geography"] = smallest_county / "grfc.txt"
    choices = {"preset": preset, "spine": spine, "estimator": estimator}
    release = "[release]\ntables = false\n" if further else BARE
    run = measured(tmp_path / "people", tables, further, release, **choices)
    geography, is_pure = tables["geography"], bool(further)
    assert_released_again(run, geography, estimator, tmp_path, release, is_pure=is_pure)


def measurements(run: RunDirectory) -> dict[str, bytes]:
    """All measurements and constraints of a run, by name."""
    files = sorted((run.root / "measurements").rglob("*.parquet"))
    assert files
    return {path.relative_to(run.root).as_posix(): path.read_bytes() for path in files}


def assert_released_again(
    run: RunDirectory,
    geography: Path,
    estimator: str,
    tmp_path: Path,
    release: str = "",
    *,
    is_pure: bool = False,
) -> None:
    """A run's release comes out again from its export, and from its own folder, of which where the
    mechanism is that of production no more than the measurements are read: they are those of the
    run to the byte, and what follows from such is what an export has shown.
    """
    export = tmp_path / "export"
    assert main(["measurements", "export", str(run.root), str(export)]) == 0
    totals = ""
    if estimator != "block_by_block":
        totals = f'state_totals = "{export / "state_totals.csv"}"\n'
    for name, folder, told in (
        ("export", export, totals),
        ("own", run.root / "measurements", ""),
    ):
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'[input]\nmeasurements = "{folder}"\ngeography = "{geography}"\n{told}'
            f'[run]\nestimator = "{estimator}"\n{release}'
        )
        settings = ESTIMATE.load(path)
        again = prepare(settings, tmp_path / f"again-{name}")
        if name == "own" and not is_pure:
            call_stages(again, settings, before=" (estimate|combine) ")
            assert measurements(again) == measurements(run)
        else:
            call_stages(again, settings)
            assert same_release(run, again)
        assert settings.is_private and not list(again.root.glob("**/ledger.db*"))


def test_a_refused_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "settings.toml"
    for text, words in (
        ('[input]\nmeasurements = "nothing"\ngeography = "g.txt"\n', "nothing is no folder"),
        (f'[input]\nmeasurements = "{tmp_path}"\ngeography = "g.txt"\n', "no noisy measurements"),
        ('[input]\nmeasured = "m"\n', "did you mean 'measurements'"),
        ('[input]\nmeasurements = "m"\ngeography = "g"\nconfidential = true\n', "confidential"),
        ('[input]\nmeasurements = "m"\ngeography = "g"\n[privacy]\nseed = 1\n', "no noise"),
        ('[input]\nmeasurements = "m"\ngeography = "g"\n[budget.persons]\nrhoo = "1"\n', "rhoo"),
    ):
        path.write_text(text)
        assert main(["run", "estimate", str(path), "--run-dir", str(tmp_path / "run")]) == 2
        out, err = capsys.readouterr()
        assert not out and words in err and err.count("\n") == 1, err
        assert not (tmp_path / "run").exists()
