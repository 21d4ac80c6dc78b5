"""What the command `design` does: the best split of a budget, shown and written as settings."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table
from spineflow.flows.console import page
from spineflow.flows.running import PRESETS
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.design.design import Design, design_universe, settings_text
from spineflow.tasks.topdown.design.settings import DesignSettings
from spineflow.tasks.topdown.ingest.ingest import addresses_of
from spineflow.tasks.topdown.spine.build import check_spine_settings


def write_design(
    settings_file: Path, overrides: list[str], out: Path | None, *, as_json: bool
) -> None:
    """Design the budgets that a settings file has a section for, show them, and write settings.

    Reads the geography and the units, of which it takes declared invariants alone. The settings go
    beside the file, under its name and `-designed`, unless `out` says otherwise.
    """
    settings = load_settings(DesignSettings, settings_file, presets=PRESETS, overrides=overrides)
    check_spine_settings(settings.topdown)
    geography, invariants = addresses_of(settings.input)
    designs = {
        universe: design_universe(settings, universe, geography, invariants)
        for universe in settings.design
    }
    file = out or settings_file.with_name(f"{settings_file.stem}-designed.toml")
    with replacing(file) as part:
        part.write_text(settings_text(settings, designs), encoding="utf-8")
    if as_json:
        print(json.dumps({name: design.as_json() for name, design in designs.items()}, indent=2))
        return
    for design in designs.values():
        show_design(design)
    print(f"settings: {file}")


def show_design(design: Design) -> None:
    """Margins of every target before and after, shares of the geolevels, and the certificate."""
    console = page()
    before, after = float(design.before.total), float(design.budget.total)
    console.print(f"\n[bold]{design.universe}[/bold]: rho {before:.4g}, designed {after:.4g}")
    table = Table("target", "query", "level or areas", "areas", "wanted", "now", "designed")
    for target in design.targets:
        table.add_row(
            target.name,
            target.query,
            target.where,
            f"{target.n_areas:,}",
            "" if target.wanted is None else f"{target.wanted:.3g}",
            f"{target.now:.3g}",
            f"{target.designed:.3g}",
        )
    console.print(table)
    shares = Table("geolevel", "share now", "designed", "largest queries")
    for name, share in design.budget.geolevel_shares.items():
        queries = sorted(design.budget.query_shares[name].items(), key=lambda item: -item[1])
        named = ", ".join(f"{query} {float(part):.0%}" for query, part in queries[:3])
        now = float(design.before.geolevel_shares[name])
        shares.add_row(name, f"{now:.2%}", f"{float(share):.2%}", named)
    console.print(shares)
    console.print(
        "Margins of 95 %, root mean square, of best linear unbiased estimates from all noisy "
        "answers; releases have no negative counts, and differ."
    )
    console.print(f"Certain: {design.certificate}.")
    console.print(
        f"The margins of now would need a rho of {design.rho_for_now:.4g} at these shares."
    )
