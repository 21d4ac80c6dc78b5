"""Released rows without noise, against a brute force over sets of texts, person by person.

The brute force follows the production program's rules from the input files alone and shares no code
with the flow.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons
from spineflow.tasks.detailed_groups.ingest.ingest import (
    ingest_input,
    read_shards,
    run_parameters,
    tabulate,
)
from spineflow.tasks.detailed_groups.measurement import (
    has_stage_1,
    measure_tables_once,
    measure_totals_once,
)
from spineflow.tasks.detailed_groups.postprocess import postprocess, stages_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.release.tables import write_run_release
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.validation.outcome import Outcome

BINS = {
    1: [0, 18, 45, 65],
    2: [0, 5, 18, 25, 35, 45, 55, 65, 75],
    3: [0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85],
}
US_TYPES = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
PR_TYPES = ("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE")
DETAILED_TYPES = ("USA", "STATE", "PR-STATE")

Row = tuple[str, ...]


@pytest.fixture(autouse=True)
def quick_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Great Expectations takes seconds; the rules are tested elsewhere."""

    def outcomes(rules, values) -> tuple[Outcome, ...]:
        return tuple(Outcome(rule.name, rule.suite, True) for rule in rules)

    monkeypatch.setattr("spineflow.tasks.tables.value_tallies.run_suites", outcomes)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="|"))


def region_of(kind: str, block: dict[str, str]) -> str | None:
    state, county = block["TABBLKST"], block["TABBLKST"] + block["TABBLKCOU"]
    return {
        "USA": "1",
        "STATE": state,
        "COUNTY": county,
        "TRACT": county + block["TABTRACTCE"],
        "PLACE": None if block["PLACEFP"] == "99999" else state + block["PLACEFP"],
        "AIANNH": None if block["AIANNHCE"] == "9999" else block["AIANNHCE"],
    }[kind.removeprefix("PR-")]


class BruteForce:
    """The rows of t1 and t2 that the rules imply for a parameters and a data directory."""

    def __init__(self, parameters: Path, data: Path, **config: object) -> None:
        self.config = json.loads((parameters / "config.json").read_text()) | config
        self.iterations = {
            row["ITERATION_CODE"]: row
            for kind in ("race", "ethnicity")
            for row in rows_of(parameters / f"{kind}-characteristic-iterations.txt")
        }
        self.pairs = rows_of(parameters / "race-and-ethnicity-code-to-iteration.txt")
        self.blocks = rows_of(data / "GRF-C.txt")
        self.persons = rows_of(data / "person-records.txt")

    def kept(self, kind: str, level: int) -> set[str]:
        other = "COARSE_ONLY" if kind in DETAILED_TYPES else "DETAILED_ONLY"
        return {
            code
            for code, row in self.iterations.items()
            if row["LEVEL"] == str(level) and row[other] == "False"
        }

    def counts(self, kind: str, level: int) -> dict[tuple[str, str], Counter]:
        """Persons by sex and age of every group that has any."""
        kept = self.kept(kind, level)
        of_code: dict[tuple[str, str], set[str]] = defaultdict(set)
        for pair in self.pairs:
            if pair["ITERATION_CODE"] in kept:
                form = self.iterations[pair["ITERATION_CODE"]].get("ALONE", "ethnicity")
                of_code[pair["RACE_ETH_CODE"], form].add(pair["ITERATION_CODE"])
        names = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")
        region = {tuple(b[n] for n in names): region_of(kind, b) for b in self.blocks}
        states = ["72"] if kind in PR_TYPES else self.config["state_filter_us"]
        most = self.config["max_race_codes"]
        groups_of: dict[tuple[str, ...], set[str]] = {}
        found: dict[tuple[str, str], Counter] = defaultdict(Counter)
        for person in self.persons:
            own = region[tuple(person[n] for n in names)]
            if own is None or person["TABBLKST"] not in states:
                continue
            codes = tuple(person[f"QRACE{i}"] for i in range(1, most + 1)) + (person["QSPAN"],)
            if codes not in groups_of:
                races = [code for code in codes[:-1] if code != "Null"]
                groups = set.intersection(*(of_code[race, "True"] for race in races))
                groups = groups.union(*(of_code[race, "False"] for race in races))
                groups_of[codes] = groups | of_code[codes[-1], "ethnicity"]
            for group in groups_of[codes]:
                found[own, group][person["QSEX"], int(person["QAGE"])] += 1
        return found

    def rows(self) -> tuple[list[Row], list[Row]]:
        """t1 and t2, sorted, of a run without noise."""
        t1: list[Row] = []
        t2: list[Row] = []
        kinds = (US_TYPES if self.config["run_us"] else ()) + (
            PR_TYPES if self.config["run_pr"] else ()
        )
        for kind in kinds:
            states = ["72"] if kind in PR_TYPES else self.config["state_filter_us"]
            blocks = [block for block in self.blocks if block["TABBLKST"] in states]
            regions = {region_of(kind, block) for block in blocks} - {None}
            for level in (1, 2):
                key = f"privacy_budget_p_level_{level}_{kind.lower().replace('-', '_')}"
                if not self.config[key]:
                    continue
                counts = self.counts(kind, level)
                for code in self.kept(kind, level):
                    for region in regions:
                        own = counts.get((region, code), Counter())
                        for row in self.group(kind, level, region, code, own):
                            (t1 if len(row) == 4 else t2).append(row)
        return sorted(t1), sorted(t2)

    def group(self, kind: str, level: int, region: str, code: str, own: Counter) -> Iterator[Row]:
        total = own.total()
        table = bisect_right(self.config["thresholds_p"][f"({kind}, {level})"], total)
        total_only = self.iterations[code]["DETAILED_ONLY"] == "True"
        if total_only:
            table = 0
        key = (region, kind, code)
        if table == 0:
            chance = self.config.get("zero_suppression_chance")
            if total > 0 or total_only or kind in DETAILED_TYPES or not chance:
                yield (*key, str(total))
            return
        yield (*key, str(total))
        for sex in ("1", "2"):
            of_sex = {age: n for (s, age), n in own.items() if s == sex}
            yield (*key, "*", "*", sex, str(sum(of_sex.values())))
            starts = BINS[table]
            for start, end in zip(starts, [*(s - 1 for s in starts[1:]), 115], strict=True):
                inside = sum(n for age, n in of_sex.items() if start <= age <= end)
                yield (*key, str(start), str(end), sex, str(inside))


def released(folder: Path, parameters: Path, data: Path, *overrides: str):
    """The sorted rows of t1 and t2 of a run without noise, whose checks have passed."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(
        f'input = {{parameters = "{parameters}", data = "{data}", confidential = false}}\n'
        'privacy = {dataset = "groups", infinite = true}\n'
    )
    settings = load_settings(DetailedGroupsSettings, file, presets=folder, overrides=overrides)
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    start_run(
        run, product="detailed-groups", settings_text=dump_settings(settings), stamp=settings.stamp
    )
    ingest_input(run, settings)
    for level in run_parameters(run, settings).budgets["p"]:
        tabulate(run, *level)
    DETAILED_GROUPS.charge_run(run, settings)
    for shard in read_shards(run):
        if has_stage_1(run, shard):
            measure_totals_once(run, settings, shard)
        measure_tables_once(run, settings, "p", shard)
    for region_pass in run_parameters(run, settings).passes:
        for stage in stages_of(settings):
            postprocess(run, settings, region_pass, stage)
    write_run_release(run, settings)
    assert all(outcome.passed for outcome in DETAILED_GROUPS.check_run(run, settings))
    return tuple(
        sorted(
            tuple(line.split("|"))
            for line in (run.unchecked_release / name).read_text().splitlines()
            if not line.startswith(("#", "REGION_ID"))
        )
        for name in ("t1.csv", "t2.csv")
    )


@pytest.mark.slow
def test_rows_of_generated_persons(groups_input: Path, tmp_path: Path) -> None:
    """Two states and Puerto Rico, all four kinds of table."""
    parameters, data = groups_input / "params", groups_input / "data"
    t1, t2 = released(tmp_path, parameters, data)
    expected = BruteForce(parameters, data).rows()
    assert (t1, t2) == expected
    sizes = Counter(row[:3] for row in t2).values()
    assert set(sizes) == {10, 20, 48}
    assert {row[1] for row in t1} == {*US_TYPES, *PR_TYPES}


@pytest.mark.slow
@pytest.mark.parametrize("config", [{"max_race_codes": 2, "run_us": False}, {"run_pr": False}])
def test_rows_of_single_passes(groups_input: Path, tmp_path: Path, config) -> None:
    parameters, data = groups_input / "params", groups_input / "data"
    overrides = [f"mechanism.{key}={json.dumps(value)}" for key, value in config.items()]
    assert released(tmp_path, parameters, data, *overrides) == (
        BruteForce(parameters, data, **config).rows()
    )


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_rows_of_the_toy_input(shared: Path, tmp_path: Path, definition: str) -> None:
    toy = shared / "data" / "safetab" / "toy"
    parameters = toy / f"input_dir_{definition}"
    assert released(tmp_path, parameters, toy) == BruteForce(parameters, toy).rows()


@pytest.mark.soak(6)
@pytest.mark.slow
def test_rows_of_many_persons_under_the_2020_specification(shared: Path, tmp_path: Path) -> None:
    parameters = shared / "data" / "safetab" / "spec_2020"
    codes = [row["RACE_ETH_CODE"] for row in rows_of(parameters / "race-and-ethnicity-codes.txt")]
    states = ("44", "09")
    data = tmp_path / "data"
    generate_persons(data, codes, persons=25_000, tracts=100, states=states, seed=6)
    t1, t2 = released(
        tmp_path, parameters, data, "mechanism.run_pr=false", f"mechanism.states={list(states)}"
    )
    config = {"run_pr": False, "state_filter_us": states}
    expected = BruteForce(parameters, data, **config).rows()
    assert (t1, t2) == expected
    assert len(t1) > 25_000
    assert len(t2) > 200
