"""Attacks on the tables of a release, each graded by the truth: figures as rows.

A row is level, measure, group, value, and low and high where the value is a share that was
measured. Measures begin with the attack's name; a baseline's with "baseline of " before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runs.directory import RunDirectory
from ..ingest.population import population_of
from ..methods.files import read_tables, write_figures
from ..paths import Draw, figures_file, tables_file
from ..settings import EvidenceSettings, Method
from ..workload.population import Population
from ..workload.tables import Tables

Row = tuple[str, str, str, float] | tuple[str, str, str, float, float, float]
"""Level, measure, group, value, and bounds of it."""


@dataclass(frozen=True, eq=False)
class Release:
    """What an attacker has, and what grades the attack.

    published, method, strength : the tables, and the method's public parameters.
    population : the truth, which grades alone; its tables tell what was asked of whom.
    """

    settings: EvidenceSettings
    draw: Draw
    method: Method
    published: Tables
    population: Population


def try_attack(run: RunDirectory, settings: EvidenceSettings, draw: Draw, name: str) -> Path:
    """Try one attack on a release, and keep its figures."""
    population = population_of(run, settings)
    published = read_tables(tables_file(run, draw), population.tables)
    release = Release(settings, draw, settings.methods[draw.method], published, population)
    path = figures_file(run, draw, name)
    write_figures(path, ATTACKS[name](release))
    return path


ATTACKS: Mapping[str, Callable[[Release], Iterable[Row]]] = {}
"""Every attack by its name."""
