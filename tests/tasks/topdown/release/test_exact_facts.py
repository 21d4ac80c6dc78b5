"""What leaves exactly is named, all of it; and what is protected does not leave."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from spineflow.flows.demo import DEMOS
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.measurement.public_answers import constrain_universe
from spineflow.tasks.topdown.paths import state_totals_file
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import write_universe_spine
from spineflow.tasks.topdown.workload.statement import declared_statements, exact_of

from tests.seeds import seeds

BY_TENURE = {"query": "sort", "per": "dwellings", "by": "sort_of_home", "at_most": 99}


def country(folder: Path, change: dict[str, Any] | None = None, *, runs_dwellings: bool):
    """The generated country with bounds by an attribute of dwellings with two levels."""
    tree = tomllib.loads((DEMOS / "country.toml").read_text(encoding="utf-8"))
    census = tree["census"]
    census["attributes"]["sort_of_home"] = {
        "column": "tenure",
        "levels": {"owned": ["1", "2"], "not owned": ["3", "9", ""]},
    }
    census["coarsenings"]["sort"] = {
        "attribute": "sex",
        "levels": {"f": ["female"], "m": ["male"]},
    }
    census["universes"]["dwellings"]["attributes"].append("sort_of_home")
    census["universes"]["persons"]["bounds"] = [BY_TENURE]
    census["universes"]["dwellings"] |= change or {}
    if not runs_dwellings:
        del tree["budget"]["dwellings"]
        census["tables"] = [t for t in census["tables"] if t["universe"] == "persons"]
    file = folder / "settings.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return load_settings(TopdownSettings, file, presets=PRESETS)


def test_exact_numbers_of_a_universe_that_is_not_run_are_named(tmp_path: Path) -> None:
    """Threat model: an exact fact that no certificate names."""
    facts = exact_of(country(tmp_path, runs_dwellings=False))
    (found,) = [fact for fact in facts if "sort_of_home of dwellings at section" in fact.subject]
    assert found.fact == (
        "the numbers of dwellings by sort_of_home in every geounit of section leave without "
        "noise, exactly as the input has them, since the bound 'sort per dwellings' of persons "
        "needs them; nothing protects them"
    )
    (bound,) = [fact for fact in facts if fact.subject == "persons: sort per dwellings"]
    assert bound.fact.endswith("whose numbers by sort_of_home are public")


def test_exact_numbers_of_a_universe_with_a_budget_are_refused(tmp_path: Path) -> None:
    """Threat model: an exact fact that no certificate names."""
    with pytest.raises(InputRefused, match="which budget.dwellings protects; take `by` out"):
        country(tmp_path, runs_dwellings=True)


@pytest.mark.parametrize(
    ("query", "is_told"),
    [("sort_of_home", True), ("sort_of_home * size", True), ("total", False), ("size", False)],
)
def test_an_invariant_that_tells_them_makes_them_public(tmp_path, query, is_told) -> None:
    change = {"invariants": [{"query": query, "geolevel": "section"}]}
    if is_told:
        facts = exact_of(country(tmp_path, change, runs_dwellings=True))
        assert any(f"{query} of dwellings in every geounit of section" in f.fact for f in facts)
    else:
        with pytest.raises(InputRefused, match="which budget.dwellings protects"):
            country(tmp_path, change, runs_dwellings=True)


@pytest.mark.parametrize("is_by", [True, False])
def test_exact_numbers_of_a_universe_told_by_occupants_are_refused(tmp_path, is_by) -> None:
    """Threat model: an exact fact that no certificate names."""
    tree = tomllib.loads((DEMOS / "country.toml").read_text(encoding="utf-8"))
    census = tree["census"]
    census["attributes"]["people"] = {
        "column": "member.number",
        "levels": {"some": [{"from": 1, "to": 2}], "more": [{"from": 3, "to": 99}]},
    }
    census["universes"] = {
        "households": {
            "table": "dwellings",
            "where": {"member.number": [{"from": 1, "to": 99}]},
            "attributes": ["people"],
            "area": "section",
            "occupants": {"member": {"table": "persons", "column": "dwelling", "key": "id"}},
        },
        "persons": census["universes"]["persons"],
    }
    bound: dict[str, Any] = {"query": "total", "per": "households", "at_most": 99}
    if is_by:
        bound |= {"query": "sex", "by": "people"}
    census["universes"]["persons"]["bounds"] = [bound]
    census["tables"] = []
    del tree["budget"]["dwellings"]
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    with pytest.raises(InputRefused, match=r"depend on their occupants \(member\)"):
        load_settings(TopdownSettings, file, presets=PRESETS)


@pytest.mark.parametrize("about", ["plain", "exact"])
def test_words_of_a_declaration_hide_no_exact_fact(tmp_path: Path, about: str) -> None:
    """Threat model: an exact fact that no certificate names."""
    tree = tomllib.loads((DEMOS / "country.toml").read_text(encoding="utf-8"))
    sentence = {"about": about, "universe": "persons", "name": "mine", "text": "my own words"}
    tree["census"]["certificate"] = [sentence]
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    names = {fact.subject for fact in exact_of(settings)}
    assert names >= {fact.subject for _, fact in declared_statements(settings)}
    sentence |= {"about": "exact", "tells": ["total of persons at region"]}
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    told = exact_of(load_settings(TopdownSettings, file, presets=PRESETS))
    assert "persons: total at region" not in {fact.subject for fact in told}
    assert "my own words" in {fact.fact for fact in told}
    sentence["tells"] = ["total of persons at moon"]
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    with pytest.raises(InputRefused, match="'total of persons at moon', which is no exact fact"):
        load_settings(TopdownSettings, file, presets=PRESETS)


@pytest.fixture(scope="module")
def census_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("county")
    county = generate_county(folder, persons=700, seed=1)
    return (
        f'[input]\npersons = "{county.persons}"\nunits = "{county.units}"\n'
        f'geography = "{county.geography}"\nconfidential = false\n'
        '[privacy]\ndataset = "county"\nseed = 1\n'
    )


@pytest.mark.parametrize("universes", [["units"], ["persons"], ["persons", "units"]])
def test_runs_on_census_tables_name_what_their_public_files_have(
    census_tables: str, tmp_path: Path, universes: list[str]
) -> None:
    """Facilities by type lie in every run's public files, and states' totals where persons run."""
    file = tmp_path / "settings.toml"
    file.write_text('preset = "pl94_2020_us"\n' + census_tables)
    settings = load_settings(
        TopdownSettings, file, presets=PRESETS, overrides=[f"run.universes={universes}"]
    )
    run = started(settings, tmp_path / "run")
    text = "; ".join(fact.fact for fact in exact_of(settings))
    assert "facilities by hhgq" in text or "facilities by type" in text
    assert "housing units" in text
    has_totals = state_totals_file(run).read_text().strip() != "{}"
    assert has_totals == ("persons" in universes)
    assert has_totals == ("the population of every state" in text)


def started(settings: TopdownSettings, folder: Path) -> RunDirectory:
    run = RunDirectory(folder)
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    ingest_input(run, settings)
    return run


# Completeness: whatever changes in the public files, a named fact has changed.

LEVELS = ("all", "region", "area")
TABLES = {"homes": ("kind", "tenure"), "people": ("sex", "age")}
CODES = {"kind": "abc", "tenure": "or", "sex": "fm", "age": "yo"}
QUERIES = {"homes": ["kind", "tenure", "kind * tenure"], "people": ["sex", "age", "sex * age"]}


def drawn_tree(rng: np.random.Generator) -> dict[str, Any]:
    """A census with random invariants and bounds, which all tables meet."""
    universes: dict[str, Any] = {
        name: {"table": name, "attributes": list(columns), "area": "area"}
        for name, columns in TABLES.items()
    }
    runs = ["people"] if rng.random() < 0.6 else ["homes", "people"]
    for name in universes:
        invariants = {
            (rng.choice(["total", *QUERIES[name]]), rng.choice(LEVELS)): None
            for _ in range(rng.integers(0, 3))
        }
        universes[name]["invariants"] = [
            {"query": str(query), "geolevel": str(level)} for query, level in invariants
        ]
    pairs = [("tenure", "sex"), ("tenure", "age"), ("kind * tenure", None), ("kind", None)]
    for name in [own for own in universes if own in runs and rng.random() < 0.7]:
        per = str(rng.choice([other for other in universes if other != name]))
        bound: dict[str, Any] = {"query": "total", "per": per, "at_least": 0}
        by, matched = pairs[rng.integers(len(pairs))]
        if matched and per == "homes" and runs == ["people"] and rng.random() < 0.7:
            bound |= {"query": matched, "by": by}
        universes[name]["bounds"] = [bound]
    attributes = {
        name: {"column": name, "levels": {code: [code] for code in codes}}
        for name, codes in CODES.items()
    }
    budget = {"rho": "1", "delta": "1e-10", "queries": {"other": {"detailed": "1"}}}
    return {
        "census": {
            "geography": {"table": "areas", "geolevels": list(LEVELS)},
            "attributes": attributes,
            "universes": universes,
        },
        "input": {"areas": "areas.csv", "confidential": False}
        | {name: f"{name}.parquet" for name in universes},
        "privacy": {"dataset": "drawn", "seed": 1},
        "geography": {"spine": "conventional"},
        "budget": dict.fromkeys(runs, budget),
    }


def drawn_tables(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    frames = {}
    for name, columns in TABLES.items():
        n = int(rng.integers(8, 14))
        frame = {column: rng.choice(list(CODES[column]), n) for column in columns}
        frames[name] = pd.DataFrame(frame | {"area": rng.choice(["r0", "r1", "s0"], n)})
    return frames


def changed(rng: np.random.Generator, frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same tables but for one cell of one record."""
    name = str(rng.choice(list(TABLES)))
    frame = frames[name].reset_index(drop=True)
    column = str(rng.choice([*TABLES[name], "area"]))
    values = ["r0", "r1", "s0"] if column == "area" else list(CODES[column])
    frame.loc[int(rng.integers(0, 8)), column] = str(rng.choice(values))
    return frames | {name: frame}


def public_files(settings: TopdownSettings, folder: Path) -> dict[str, bytes]:
    """All that a run has written when nothing has been measured, but for what is confidential."""
    run = started(settings, folder)
    for universe in settings.run.universes:
        write_universe_spine(run, settings, universe)
        constrain_universe(run, settings, universe)
    kept = (path for part in ("spine", "measurements") for path in (run.root / part).rglob("*"))
    return {str(p.relative_to(run.root)): p.read_bytes() for p in kept if p.is_file()}


def told(settings: TopdownSettings, frames: dict[str, pd.DataFrame]) -> dict[str, list]:
    """The answers that the certificate names, counted here."""
    found = {}
    for key, fact in declared_statements(settings):
        parts = re.fullmatch(r"(.+) of (\w+) at (\w+)", key)
        if parts is None:
            continue
        query, universe, level = parts.groups()
        assert universe in fact.fact and level in fact.fact
        assert query == "total" or query in fact.fact
        frame = frames[universe].assign(all="", region=frames[universe]["area"].str[0])
        columns = [level, *([] if query == "total" else query.split(" * "))]
        found[key] = sorted(map(str, frame[columns].value_counts().items()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 12))
def test_whatever_changes_in_public_files_is_a_named_fact(tmp_path: Path, seed: int) -> None:
    """Threat model: an exact fact that no certificate names."""
    rng = np.random.default_rng(seed)
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(drawn_tree(rng)), encoding="utf-8")
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    areas = pd.DataFrame({"region": ["r", "r", "s"], "area": ["r0", "r1", "s0"]})
    areas.to_csv(tmp_path / "areas.csv", index=False)
    before = drawn_tables(rng)
    seen = []
    for number in range(6):
        frames = changed(rng, before) if number else before
        for name, frame in frames.items():
            frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
        seen.append((public_files(settings, tmp_path / str(number)), told(settings, frames)))
    for files, facts in seen[1:]:
        assert files.keys() == seen[0][0].keys()
        if files != seen[0][0]:
            assert facts != seen[0][1], [n for n in files if files[n] != seen[0][0][n]]
