"""A run's draws: charged before, claimed, drawn as charged, recorded before they have a name."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger.accounting import BOUNDED, ZCDP, Guarantee
from spineflow.tasks.ledger.caps import Caps, set_caps, summary
from spineflow.tasks.ledger.charging import (
    charge_draws,
    is_settled,
    missing_cap_warning,
    refuse_unlike_ledger,
    single_draw,
)
from spineflow.tasks.ledger.plan import Measure, UniversePlan
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, Noise
from spineflow.tasks.runs import directory
from spineflow.tasks.runs import files as files_of_runs
from spineflow.tasks.runs.directory import (
    RunDirectory,
    identity_of,
    make_identity,
    secure_confidential,
    settings_digest,
    start_run,
)
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused
from spineflow.tasks.runs.files import sha256_of_file, write_once
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.runs.steps import load_run
from spineflow.tasks.topdown.settings import TopdownSettings

NOISE = Noise(DISCRETE_GAUSSIAN, Fraction(1))
PART = "US/total"


@pytest.fixture
def settings(tmp_path: Path) -> TopdownSettings:
    file = tmp_path / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "county"\n'
    )
    presets = Path(__file__).resolve().parents[3] / "flows" / "settings"
    return load_settings(TopdownSettings, file, presets=presets)


@pytest.fixture
def run(tmp_path: Path, settings: TopdownSettings) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    start_run(run, product="topdown", settings_text=dump_settings(settings))
    plan_of(run).parent.mkdir()
    plan_of(run).write_text("the plan")
    truth_of(run).parent.mkdir()
    truth_of(run).write_text("the people")
    return run


def truth_of(run: RunDirectory) -> Path:
    return run.histogram("persons")


def plan_of(run: RunDirectory) -> Path:
    return run.root / "spine" / "plan.json"


def files_of(run: RunDirectory) -> list[Path]:
    return [run.dpqueries("persons", geolevel, "00000") for geolevel in ("US", "State")]


def charged(
    run: RunDirectory, settings: ProductSettings, files: Iterable[Path] | None = None
) -> None:
    guarantee = Guarantee(ZCDP, Fraction(1), BOUNDED)
    charge_draws(
        run,
        settings,
        draws=[
            UniversePlan("persons", DISCRETE_GAUSSIAN, guarantee, measures=(Measure(PART, NOISE),))
        ],
        inputs={"persons": InputDigest("00", ())},
        decided_by=[plan_of(run)],
        truth=[truth_of(run)],
        files=files_of(run) if files is None else files,
    )


def measured(run: RunDirectory, settings: ProductSettings, path: Path, noise: Noise = NOISE) -> int:
    """Draw and publish a file; returns how often noise was drawn for it."""
    drawn = []
    with single_draw(run, settings, path, "persons", truth=[truth_of(run)]) as drawing:

        def write(file) -> None:
            drawn.append(drawing.noise.draw(PART, noise, 40))
            file.write(drawn[-1].tobytes())

        write_once(path, write, drawing.recording)
    return len(drawn)


def entered(run: RunDirectory) -> None:
    manifest = run.read_manifest()
    digests = {p.relative_to(run.root).as_posix(): sha256_of_file(p) for p in files_of(run)}
    manifest["stages"]["measure"] = {"digests": digests}
    run.write_manifest(manifest)


def copied(run: RunDirectory) -> RunDirectory:
    copy = RunDirectory(run.root.with_name("copy"))
    shutil.copytree(run.root, copy.root)
    return copy


class Killed(BaseException):
    """Stands for the end of a process."""


def killed(*_) -> None:
    raise Killed


def kill_after_record(run, settings, path: Path, monkeypatch) -> None:
    """Draw a file; its worker dies when it is recorded, and before it has its name."""
    link = os.link

    def link_or_die(source, target, **options) -> None:
        if target == path:
            raise Killed
        link(source, target, **options)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(os, "link", link_or_die)
        measured(run, settings, path)
    assert not path.exists()


def left_of(run: RunDirectory, path: Path) -> list[Path]:
    """What lies in confidence, without its name, of a file."""
    return list(run.unrecorded(path).glob(f".{path.name}.*.unpublished"))


def test_a_run_is_settled_once_all_it_published_was_seen(run: RunDirectory, settings) -> None:
    charged(run, settings)
    files = files_of(run)
    for path in files:
        assert not is_settled(run, settings, files)
        assert measured(run, settings, path) == 1
    assert not is_settled(run, settings, files)
    entered(run)
    assert is_settled(run, settings, files)


def test_what_was_recorded_at_a_kill_gets_its_name(run, settings, monkeypatch) -> None:
    """Threat model: crash after noise could be seen."""
    charged(run, settings)
    first, last = files_of(run)
    kill_after_record(run, settings, first, monkeypatch)
    (left,) = left_of(run, first)
    drawn = left.read_bytes()
    start_run(run, product="topdown", settings_text=run.settings.read_text())
    assert measured(run, settings, first) == 0
    assert first.read_bytes() == drawn
    kill_after_record(run, settings, last, monkeypatch)
    charged(run, settings)
    assert last.exists()
    assert not list(run.root.rglob("*.unpublished"))


def test_recorded_noise_that_is_gone_is_never_drawn_again(run, settings, monkeypatch) -> None:
    """It may have been seen: the worker was dead, but who can tell who read its file.

    Threat model: crash after noise could be seen.
    """
    charged(run, settings)
    path, _ = files_of(run)
    kill_after_record(run, settings, path, monkeypatch)
    for left in left_of(run, path):
        left.unlink()
    for again in (lambda: measured(run, settings, path), lambda: charged(run, settings)):
        with pytest.raises(BudgetRefused, match="never drawn again"):
            again()


def test_what_was_not_recorded_is_drawn_anew_at_no_cost(run, settings, monkeypatch) -> None:
    """Threat model: crash before noise could be seen."""
    charged(run, settings)
    path, _ = files_of(run)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("spineflow.tasks.ledger.charging.record_publication", killed)
        measured(run, settings, path)
    charged(run, settings)
    assert measured(run, settings, path) == 1
    assert not list(run.root.rglob("*.unpublished"))
    spent = summary(open_ledger(Path(settings.privacy.ledger)))["datasets"]["county"]
    assert spent["rho"] == "1"


def test_of_two_copies_one_draws(run: RunDirectory, settings) -> None:
    """Threat model: copies of a run directory, resumed at once."""
    charged(run, settings)
    copy = copied(run)
    for path in files_of(copy):
        with pytest.raises(BudgetRefused, match="draws in another directory"):
            measured(copy, settings, path)
    with pytest.raises(BudgetRefused, match="draws in another directory"):
        charged(copy, settings)
    assert not list((copy.root / "measurements").rglob("*.parquet"))
    assert [measured(run, settings, path) for path in files_of(run)] == [1, 1]


def test_a_renamed_directory_goes_on(run: RunDirectory, settings) -> None:
    charged(run, settings)
    run.root.rename(run.root.with_name("renamed"))
    renamed = RunDirectory(run.root.with_name("renamed"))
    start_run(renamed, product="topdown", settings_text=renamed.settings.read_text())
    assert [measured(renamed, settings, path) for path in files_of(renamed)] == [1, 1]


def test_the_ledger_names_the_folders_of_runs(run: RunDirectory, settings) -> None:
    """Where they were when they were last charged; a copy that is refused changes nothing."""

    def folders() -> set[str]:
        spent = summary(open_ledger(Path(settings.privacy.ledger)))["datasets"]["county"]
        return {draw["folder"] for of in spent["products"].values() for draw in of["draws"]}

    charged(run, settings)
    assert folders() == {str(run.root)}
    with pytest.raises(BudgetRefused):
        charged(copied(run), settings)
    assert folders() == {str(run.root)}
    renamed = RunDirectory(run.root.rename(run.root.with_name("renamed")))
    charged(renamed, settings)
    assert folders() == {str(renamed.root)}


def test_copies_by_hard_links_are_copies(run: RunDirectory) -> None:
    """Threat model: copies of a run directory, resumed at once."""
    before = identity_of(run)
    copy = RunDirectory(run.root.with_name("copy"))
    shutil.copytree(run.root, copy.root, copy_function=os.link)
    assert identity_of(copy) != before
    make_identity(run)
    assert identity_of(run).split()[0] == before.split()[0]


def test_a_draw_finds_its_charge_in_the_ledger(run: RunDirectory, settings) -> None:
    """The ledger is replaced by an older copy after the charge, key and all."""
    ledger = open_ledger(Path(settings.privacy.ledger))
    set_caps(ledger, "county", Caps(Fraction(3)))
    older = [(path, path.read_bytes()) for path in (ledger.path, ledger.key_path)]
    charged(run, settings)
    for path, content in older:
        path.write_bytes(content)
    with pytest.raises(BudgetRefused, match="holds no charge for draw 'persons'"):
        measured(run, settings, files_of(run)[0])
    assert not list((run.root / "measurements").rglob("*.parquet"))


def test_noise_that_was_not_charged_is_not_drawn(run: RunDirectory, settings) -> None:
    """Threat model: noise that was not charged."""
    charged(run, settings)
    path, _ = files_of(run)
    with pytest.raises(BudgetRefused, match="was not charged for"):
        measured(run, settings, path, Noise(DISCRETE_GAUSSIAN, Fraction(1, 10**9)))
    assert not path.exists()


@pytest.mark.parametrize("name", ["settings.toml", "spine/plan.json"])
@pytest.mark.parametrize("how", ["edited", "removed", "edited and told to the manifest"])
def test_what_was_charged_with_another_file_is_not_drawn(
    run: RunDirectory, settings, name: str, how: str
) -> None:
    """Threat model: files of a run edited after the charge."""
    charged(run, settings)
    path = run.root / name
    text = path.read_text() + "# edited\n"
    path.unlink() if how == "removed" else path.write_text(text)
    if name == "settings.toml" and "manifest" in how:
        run.update_manifest(settings_digest=settings_digest(text))
        (run.root / "spine" / "charged.json").unlink()
    for use in (
        lambda: measured(run, settings, files_of(run)[0]),
        lambda: refuse_unlike_ledger(run, settings),
    ):
        with pytest.raises((InputRefused, FileNotFoundError)):
            use()
    assert not list((run.root / "measurements").rglob("*.parquet"))


@pytest.mark.parametrize("name", ["settings.toml", "spine/plan.json"])
def test_no_step_opens_a_run_that_was_edited(run: RunDirectory, settings, name: str) -> None:
    """Threat model: files of a run edited after the charge."""
    charged(run, settings)
    assert load_run(run.root, TopdownSettings)[1] == settings
    path = run.root / name
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(InputRefused, match="has been edited since the run"):
        load_run(run.root, TopdownSettings)


def test_a_spine_in_another_cut_is_not_measured(run: RunDirectory, settings) -> None:
    """Also in a run of an older version, which the ledger holds no charged files of."""
    charged(run, settings)
    measured(run, settings, files_of(run)[0])
    with pytest.raises(BudgetRefused, match="no longer has"):
        charged(run, settings, [run.dpqueries("persons", "US", "00001")])


def test_an_altered_measurement_stops_a_run_that_has_measured(run: RunDirectory, settings) -> None:
    """Threat model: measurements altered or without noise."""
    charged(run, settings)
    first, last = files = files_of(run)
    for path in files:
        measured(run, settings, path)
    entered(run)
    last.write_bytes(b"altered")
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        is_settled(run, settings, files)
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        measured(run, settings, last)
    run.release.mkdir()
    assert is_settled(run, settings, files)
    first.unlink()
    assert not is_settled(run, settings, files)


@pytest.mark.parametrize("is_altered", [False, True])
def test_what_was_hashed_is_not_read_again_unless_it_was_altered(
    run: RunDirectory, settings, monkeypatch, is_altered: bool
) -> None:
    charged(run, settings)
    files = files_of(run)
    for path in files:
        measured(run, settings, path)
    entered(run)
    directory.refuse_altered(run)
    files_of_runs.digests_of(files)
    read = []
    monkeypatch.setattr(
        files_of_runs,
        "sha256_of_file",
        lambda path: read.append(path) or sha256_of_file(path),
    )
    if not is_altered:
        assert is_settled(run, settings, files)
        assert not read
        return
    altered = bytearray(files[1].read_bytes())
    altered[0] ^= 1
    times = files[1].stat().st_atime_ns, files[1].stat().st_mtime_ns
    files[1].write_bytes(altered)
    os.utime(files[1], ns=times)
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        is_settled(run, settings, files)
    assert read == [files[1]]


def test_a_measurement_that_nobody_recorded_stops_the_run(run: RunDirectory, settings) -> None:
    charged(run, settings)
    path, _ = files_of(run)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"from elsewhere")
    with pytest.raises(BudgetRefused, match="the ledger does not know it"):
        charged(run, settings)


def test_people_that_were_not_charged_are_not_measured(run: RunDirectory, settings) -> None:
    """Threat model: files of a run edited after the charge."""
    charged(run, settings)
    first, second = files_of(run)
    measured(run, settings, first)
    truth_of(run).write_text("the others")
    with pytest.raises(BudgetRefused, match="persons.parquet is not the file that run"):
        measured(run, settings, second)
    with pytest.raises(BudgetRefused, match="is not the file that run"):
        charged(run, settings)
    truth_of(run).write_text("the people")
    charged(run, settings)
    assert measured(run, settings, second) == 1


def test_what_is_measured_need_not_be_kept(run: RunDirectory, settings) -> None:
    """Neither a name that is wanting, nor what is compared with the ledger, needs the people."""
    charged(run, settings)
    for path in files_of(run):
        measured(run, settings, path)
    entered(run)
    shutil.rmtree(run.confidential)
    assert is_settled(run, settings, files_of(run))
    refuse_unlike_ledger(run, settings)


def test_digests_of_people_are_keyed_and_in_the_ledger_alone(run: RunDirectory, settings) -> None:
    """Threat model: a reader of the ledger without its key."""
    charged(run, settings)
    plain = sha256_of_file(truth_of(run))
    ledger = Path(settings.privacy.ledger)
    with sqlite3.connect(ledger) as connection:
        rows = connection.execute("SELECT name, digest FROM conditions").fetchall()
    connection.close()
    digests = dict(rows)
    assert digests["confidential/histograms/persons.parquet"] not in ("", plain)
    assert "confidential" not in (run.root / "spine" / "charged.json").read_text()


def test_people_whose_digests_were_deleted_are_not_measured(run: RunDirectory, settings) -> None:
    """Threat model: rows of a run deleted from the ledger."""
    charged(run, settings)
    with sqlite3.connect(settings.privacy.ledger) as connection:
        connection.execute("DELETE FROM conditions WHERE name LIKE 'confidential/%'")
    connection.close()
    for use in (lambda: measured(run, settings, files_of(run)[0]), lambda: charged(run, settings)):
        with pytest.raises(BudgetRefused, match="is not the file that run"):
            use()


def test_a_first_run_without_a_cap_says_so(settings) -> None:
    path = Path(settings.privacy.ledger)
    assert "there is no ledger" in missing_cap_warning(settings)
    assert not path.exists()
    ledger = open_ledger(path)
    assert "dataset 'county' has no cap" in missing_cap_warning(settings)
    set_caps(ledger, None, Caps(Fraction(5)))
    assert missing_cap_warning(settings) is None


def test_a_ledger_without_a_folder_is_refused(settings, tmp_path: Path) -> None:
    privacy = settings.privacy.model_copy(update={"ledger": str(tmp_path / "none" / "ledger.db")})
    with pytest.raises(BudgetRefused, match="folder of the ledger .* does not exist"):
        missing_cap_warning(settings.model_copy(update={"privacy": privacy}))


def new_run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "new")
    run.root.mkdir()
    return run


def test_a_confidential_folder_of_others_is_refused(tmp_path: Path) -> None:
    """Threat model: a `confidential/` folder open to others."""
    run = new_run(tmp_path)
    run.confidential.mkdir()
    run.confidential.chmod(0o755)
    with pytest.raises(InputRefused, match="others can enter it"):
        start_run(run, product="topdown", settings_text="")
    assert not run.manifest.exists()
    run.confidential.chmod(0o700)
    start_run(run, product="topdown", settings_text="")


@pytest.mark.parametrize("begun", [False, True])
def test_a_link_is_no_confidential_folder(tmp_path: Path, begun: bool) -> None:
    """Threat model: a `confidential/` folder open to others."""
    run = new_run(tmp_path)
    if begun:
        start_run(run, product="topdown", settings_text="")
        run.confidential.rmdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    run.confidential.symlink_to(tmp_path / "theirs")
    with pytest.raises(InputRefused, match="a link or a file"):
        start_run(run, product="topdown", settings_text="")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give files away")
def test_a_confidential_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    start_run(run, product="topdown", settings_text="")
    os.chown(run.confidential, 65534, 65534)
    with pytest.raises(InputRefused, match="belongs to another user"):
        start_run(run, product="topdown", settings_text="")


def test_the_confidential_folder_is_closed_at_every_start(tmp_path: Path) -> None:
    """Threat model: a `confidential/` folder open to others."""
    run = new_run(tmp_path)
    for _ in range(2):
        start_run(run, product="topdown", settings_text="")
        assert run.confidential.stat().st_mode & 0o777 == 0o700
        run.confidential.chmod(0o777)
    run.confidential.rmdir()
    secure_confidential(run)
    assert run.confidential.stat().st_mode & 0o777 == 0o700
