"""The parameters directory: `config.json`, settings above it, and the copies that a run keeps."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.workload.parameters import (
    copy_parameters,
    parameters_digest,
    read_parameters,
    read_specification,
)
from spineflow.tasks.runs.errors import InputRefused


@pytest.fixture
def folder(groups_input: Path, tmp_path: Path) -> Path:
    shutil.copytree(groups_input / "params", tmp_path / "params")
    return tmp_path / "params"


def test_settings_stand_above_the_configuration_key_by_key(folder: Path) -> None:
    own = {
        "privacy_budget_p_level_1_usa": Fraction(1, 3),
        "thresholds_p": {"(USA, 1)": (1, 2, 3)},
    }
    before, after = read_parameters(str(folder), {}), read_parameters(str(folder), own)
    assert after.budgets["p"]["USA", 1] == Fraction(1, 3)
    assert after.budgets["p"]["USA", 2] == before.budgets["p"]["USA", 2]
    assert after.thresholds["p"]["USA", 1] == (1, 2, 3)
    assert after.thresholds["p"]["USA", 2] == before.thresholds["p"]["USA", 2]


def test_settings_alone_are_enough(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(), parse_float=Fraction)
    before = read_parameters(str(folder), {})
    (folder / "config.json").unlink()
    del config["reader"]
    assert read_parameters(str(folder), config) == before


def test_messages_name_the_files_and_the_section(folder: Path) -> None:
    with pytest.raises(InputRefused, match=r"^config.json and \[mechanism\]: run_us must be"):
        read_parameters(str(folder), {"run_us": 3})
    (folder / "config.json").unlink()
    with pytest.raises(InputRefused, match=r"^\[mechanism\]: the key 'run_us' is missing"):
        read_parameters(str(folder), {})


def test_a_folder_without_specification_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="race-and-ethnicity-codes.txt: the file does not exist"):
        read_specification(str(tmp_path))


@pytest.mark.parametrize("with_config", [True, False])
def test_copies_are_the_same_and_their_digest_tells_changes(
    folder: Path, tmp_path: Path, with_config: bool
) -> None:
    if not with_config:
        (folder / "config.json").unlink()
    copy = tmp_path / "copy"
    copy_parameters(str(folder), copy)
    assert {path.name: path.read_text() for path in copy.iterdir()} == {
        path.name: path.read_text() for path in folder.iterdir()
    }
    digest = parameters_digest(copy)
    assert digest == parameters_digest(folder)
    path = copy / "race-and-ethnicity-codes.txt"
    path.write_text(path.read_text() + "7777|x\n")
    assert parameters_digest(copy) != digest
