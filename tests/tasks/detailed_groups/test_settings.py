"""Settings of detailed groups: what stands above `config.json`, and what does not fit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings

TEXT = """\
[input]
parameters = "params"
data = "data"
[privacy]
dataset = "d"
[mechanism]
definition = "puredp"
run_pr = false
states = ["44"]
stage_1_fraction = "1/7"
[mechanism.budgets.PR-TRACT]
2 = "0.3"
[mechanism.thresholds.USA]
1 = [1, 2, 3]
"""


def load(folder: Path, text: str) -> DetailedGroupsSettings:
    file = folder / "settings.toml"
    file.write_text(text)
    return load_settings(DetailedGroupsSettings, file, presets=folder)


def test_settings_stand_for_keys_of_the_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT).mechanism.config == {
        "privacy_defn": "puredp",
        "run_pr": False,
        "state_filter_us": ("44",),
        "privacy_budget_p_stage_1_fraction": Fraction(1, 7),
        "privacy_budget_p_level_2_pr_tract": Fraction(3, 10),
        "thresholds_p": {"(USA, 1)": (1, 2, 3)},
    }


def test_parameters_that_are_not_there_or_nest_too_deep_are_named(tmp_path: Path) -> None:
    settings = load(tmp_path, TEXT)
    for read in (
        lambda: read_parameters(settings.input.parameters, {}),
        lambda: read_specification(settings.input.parameters),
    ):
        with pytest.raises(InputRefused, match=r"input\.parameters: .*params is no folder"):
            read()
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputRefused, match=r"config\.json: .*too deep"):
        read_parameters(settings.input.parameters, {})


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('data = "data"', "", "needs either data, or all of persons, units and geography"),
        ('data = "data"', 'persons = "p"', "needs either data"),
        ("budgets.PR-TRACT", "budgets.WARD", "mechanism.budgets.WARD must be one of USA"),
        ("2 =", "3 =", "with the levels 1 and 2"),
        ("run_pr", "units_are_invariant = true\nrun_pr", "needs the census tables"),
        ("run_pr", 'summary_levels = ["USA"]\nrun_pr', "must order all of USA"),
        ('"puredp"', '"approximate"', "mechanism.definition"),
        ('"1/7"', "0.1", "must be an exact fraction in quotes"),
        ("run_pr", "run_prr", "unknown setting 'mechanism.run_prr' (did you mean 'run_pr'?)"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in TEXT
    with pytest.raises(InputRefused) as refused:
        load(tmp_path, TEXT.replace(old, new, 1))
    assert sentence in str(refused.value)
