"""What may befall runs and their ledger: the operations of random schedules."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq

from tests.flows.forked_commands import begun
from tests.flows.published_noise import digest_of, measurement_names
from tests.flows.schedules import DONE, PEOPLE, UNUSABLE, Directory, Kind, World, put, undo


def start(world: World) -> None:
    """Another run of the same people, killed or not."""
    number = len(world.directories)
    name = world.random.choice(list(world.files))
    directory = Directory(world.folder / f"{name}-{number}", name)
    world.directories.append(directory)
    world.command("run", directory, killed=world.random.random() < 0.7)


def resume(world: World) -> None:
    directory = world.chosen()
    kind: Kind = "resume" if directory.run_id is not None else "run"
    world.command(kind, directory, killed=world.random.random() < 0.2)


def resume_and_kill(world: World) -> None:
    directory = world.chosen()
    kind: Kind = "resume" if directory.run_id is not None else "run"
    world.command(kind, directory, killed=True)


def report(world: World) -> None:
    world.command("report", world.chosen())


def copy(world: World) -> None:
    """A copy of a run's directory, with all that was done to it."""
    directory = world.chosen(begun=True)
    if directory.run_id is None:
        return
    root = world.folder / f"{directory.root.name}-copy-{len(world.directories)}"
    shutil.copytree(directory.root, root)
    world.directories.append(
        Directory(
            root,
            directory.product,
            dict(directory.files),
            *(set(names) for names in directory.done()),
        )
    )
    world.say(f"copy {directory.root.name} to {root.name}")


def race(world: World) -> None:
    """A run and its copy resumed at once."""
    copies = defaultdict(list)
    for directory in world.directories:
        copies[directory.run_id].append(directory)
    pairs = [found for run_id, found in copies.items() if run_id and len(found) > 1]
    if not pairs:
        copy(world)
        return
    both = world.random.sample(world.random.choice(pairs), 2)
    expected = [world.expected("resume", directory) for directory in both]
    commands = [begun(world.arguments("resume", d), world.folder, world.logs) for d in both]
    codes = [command.ended() for command in commands]
    world.say(f"resume {[d.root.name for d in both]} at once -> {codes} of {expected}")
    for command, code, allowed in zip(commands, codes, expected, strict=True):
        # The other may have been charged, or have drawn, in the meantime.
        if code not in allowed | {UNUSABLE}:
            world.fail(f"exit code {code}: {command.told()}")
    if expected == [{DONE}, {DONE}] and DONE not in codes:
        world.fail(f"both were refused: {[command.told() for command in commands]}")


def back_up(world: World) -> None:
    """Keep a copy of the ledger, of its key, or of a run's directory, as it is now."""
    directory = world.chosen()
    what = world.random.choice([world.ledger, world.ledger, world.key, directory.root])
    if not what.exists() or (what == directory.root and not directory.is_clean()):
        return
    kept = world.folder / "backups" / what.name
    remove(kept)
    kept.parent.mkdir(exist_ok=True)
    (shutil.copytree if what.is_dir() else shutil.copy2)(what, kept)
    world.backups[what] = kept, directory.product
    world.say(f"back up {what.name}")


def restore(world: World) -> None:
    """Put back what was kept: of ledger and key one at a time, for nothing could tell of both."""
    is_usable = world.is_usable()
    found = [what for what in world.backups if is_usable or what not in world.newest]
    if not found:
        back_up(world)
        return
    what = world.random.choice(found)
    kept, product_name = world.backups[what]
    remove(what)
    (shutil.copytree if kept.is_dir() else shutil.copy2)(kept, what)
    if kept.is_dir():
        world.directories = [d for d in world.directories if d.root != what]
        world.directories.append(Directory(what, product_name))
    world.say(f"restore {what.name}")


def put_back(world: World) -> None:
    """The newest ledger and key, and all that was edited or removed of a run."""
    for path, content in world.newest.items():
        put(path, content)
    directory = world.chosen()
    undo(directory)
    world.say(f"put back the ledger and {directory.root.name}")


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_ledger(world: World) -> None:
    """The ledger, or its key, is deleted."""
    if not world.is_usable():
        put_back(world)
        return
    what = world.random.choice([world.ledger, world.key])
    what.unlink()
    world.say(f"delete {what.name}")


def edit(world: World) -> None:
    """Edit the settings, or, once it is charged, a file that decides what a run draws."""
    directory = world.chosen(begun=True)
    if directory.run_id is None:
        return
    names = ["settings.toml"]
    if world.is_charged(directory):
        names += [
            path.relative_to(directory.root).as_posix()
            for folder in ("spine", "hierarchy", "parameters", "geography")
            for path in sorted((directory.root / folder).rglob("*"))
            if decides(path)
        ]
    name = world.random.choice(names)
    path = directory.root / name
    directory.files.setdefault(name, path.read_bytes())
    directory.edited.add(name)
    spoil(path)
    world.say(f"edit {name} of {directory.root.name}")


def decides(path: Path) -> bool:
    """Whether a public file of a run decides its draws."""
    aside = ("charged.json", "exact_groups.parquet", "region_names.json")
    return path.is_file() and path.name not in aside and "summary" not in path.parts


def spoil(path: Path) -> None:
    """Change a file's digest, and, of settings, what they say."""
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, compression="gzip")
        return
    if path.suffix == ".arrow":
        path.write_bytes(path.read_bytes() + bytes(1))
        return
    text = path.read_text(encoding="utf-8")
    if path.name == "settings.toml":
        text = text.replace("confidential = true", "confidential = false")
    path.write_text(f"{text}\n", encoding="utf-8")


def replace_people(world: World) -> None:
    """A file of the people who are measured is replaced, once the run was charged for them."""
    directory = world.chosen(begun=True)
    if not world.is_charged(directory):
        return
    confidential = directory.run.confidential
    found = [
        path
        for pattern in ("histograms/*.parquet", "detailed_groups/*/*.parquet", "trips/*.parquet")
        for path in sorted(confidential.glob(pattern))
    ]
    path = world.random.choice(found)
    name = path.relative_to(directory.root).as_posix()
    directory.files.setdefault(name, path.read_bytes())
    directory.replaced.add(name)
    spoil(path)
    world.say(f"replace {name} of {directory.root.name}")


def lose(world: World) -> None:
    """A published measurement is deleted, or altered."""
    directory = world.chosen(begun=True)
    names = sorted(measurement_names(directory.root).keys() - directory.forged)
    if not names:
        return
    name = world.random.choice(names)
    path = directory.root / name
    directory.files.setdefault(name, path.read_bytes())
    directory.lost.add(name)
    if world.random.random() < 0.7:
        path.unlink()
        world.say(f"delete {name} of {directory.root.name}")
    else:
        path.write_bytes(path.read_bytes() + b" ")
        world.false.add(digest_of(path))
        world.say(f"alter {name} of {directory.root.name}")


def forge(world: World) -> None:
    """A measurement of another run stands where one will be, in a run that is not whole."""
    directory = world.chosen(begun=True)
    if directory.run_id is None or directory.run.release.exists():
        return
    known = {*world.view.published_by(directory.run_id), *measurement_names(directory.root)}
    names = world.samples[directory.product].keys() - known
    if not names:
        return
    name = world.random.choice(sorted(names))
    path = directory.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(world.samples[directory.product][name])
    world.false.add(digest_of(path))
    directory.forged.add(name)
    world.say(f"forge {name} in {directory.root.name}")


def unrelease(world: World) -> None:
    """The release is deleted, and with it what tells that the run is done."""
    directory = world.chosen(begun=True)
    if directory.run.release.exists():
        shutil.rmtree(directory.run.release)
        world.say(f"delete the release of {directory.root.name}")


def rename(world: World) -> None:
    """A run's directory gets another name; it remains the one that draws."""
    directory = world.chosen(begun=True)
    if directory.run_id is None:
        return
    directory.root = directory.root.rename(f"{directory.root}-renamed")
    world.say(f"rename to {directory.root.name}")


def move(world: World) -> None:
    """Another directory is declared the one that draws."""
    world.command("move", world.chosen(begun=True))


def cap(world: World) -> None:
    """The cap is set to what is spent, or raised again."""
    if not world.is_usable() or not world.view.spent(PEOPLE):
        return
    amount = world.random.choice([world.view.spent(PEOPLE), Fraction(1000)])
    arguments = ["ledger", "set-cap", PEOPLE, str(amount), "--ledger", str(world.ledger)]
    code = begun(arguments, world.folder, world.logs).ended()
    world.say(f"cap of {amount} -> {code}")
    if code != DONE:
        world.fail("the cap was refused")


OPERATIONS: tuple[Callable[[World], None], ...] = (
    *(resume_and_kill,) * 6,
    *(resume,) * 3,
    *(copy, race, back_up, restore, edit, put_back, lose, forge) * 2,
    *(start, report, remove_ledger, replace_people, unrelease, rename, move, cap),
)
"""What may happen, as often as it stands here."""


def play(
    world: World,
    length: int,
    operations: Iterable[Callable[[World], None]] = OPERATIONS,
) -> None:
    """A schedule: some operations, then everything is put back, and every run has to end."""
    chosen = list(operations)
    for _ in range(length):
        world.step(chosen)
    world.healed()
