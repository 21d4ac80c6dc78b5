"""Time and peak memory of a national redistricting spine on generated geographies, and its figures.

Run `.venv/bin/python -m benchmarks.national_spine [SCALE ...]` from the repository's root; the
scales are fractions of the nation, 1/16, 1/4 and 1/1 if none are given. Each runs in a process
of its own, so that the peak memory is its own; the generated geography is part of it. The budget
is that of the preset pl94_2020_us for persons. After the timings come the off-spine distances and
predicted standard deviations at the last scale, for the AIAN spine and the optimised one.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import tomllib
from fractions import Fraction
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PRESET = REPOSITORY / "flows" / "settings" / "pl94_2020_us.toml"
STATISTICS = ("mean", "q50", "q90", "q99", "max")


def measure(scale: float) -> dict:
    """Build the optimised spine and its report at a scale: seconds, GiB, the report's figures."""
    from spineflow.geography.categories import off_spine_categories
    from spineflow.geography.spine import SpineRules, build_spine
    from spineflow.geography.variance import summarise_spines, total_share
    from spineflow.tasks.census.cef_2020 import PERSONS
    from spineflow.tasks.census.queries import marginal_query

    from benchmarks.national_geography import (
        AIAN_RANGES,
        STRONG_MCD_STATES,
        NationalSizes,
        generate_geography,
    )

    rules = SpineRules(aian_ranges=AIAN_RANGES, strong_mcd_states=STRONG_MCD_STATES)
    budget = tomllib.loads(PRESET.read_text())["budget"]["persons"]
    shares = {name: Fraction(share) for name, share in budget["geolevels"].items()}
    total_shares = {
        geolevel: total_share(
            [float(Fraction(share)) for share in queries.values()],
            [marginal_query(PERSONS, name).n_rows for name in queries],
            is_pure=False,
        )
        for geolevel, queries in budget["queries"].items()
    }

    def build(sizes: NationalSizes) -> dict:
        geography, facilities = generate_geography(sizes)

        def spine_of(kind: str):
            return build_spine(
                geography,
                geolevel_shares=shares,
                kind=kind,
                rules=rules,
                is_pure=False,
                group_quarters=facilities,
            )

        started = time.perf_counter()
        spine = spine_of("optimized")
        built = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        categories = off_spine_categories(geography, rules, group_quarters=facilities)
        summary = summarise_spines(
            {"aian": spine_of("aian"), "optimized": spine},
            categories,
            is_pure=False,
            privacy_loss=float(Fraction(budget["rho"])),
            total_shares=total_shares,
        )
        return {
            "blocks": spine.n_blocks,
            "county_geounits": len(spine.geolevel("County")),
            "tract_geounits": len(spine.geolevel("Tract")),
            "block_group_geounits": len(spine.geolevel("Block_Group")),
            "spine_seconds": built - started,
            "spine_peak_gib": peak,
            "report_seconds": time.perf_counter() - built,
            "report_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "distances": summary.distances.to_dict("records"),
            "standard_deviations": summary.standard_deviations.to_dict("records"),
        }

    build(NationalSizes().scaled(1 / 1024))
    return build(NationalSizes().scaled(scale))


def main(arguments: list[str]) -> None:
    """Measure every scale in its own process and print one line each."""
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(float(Fraction(arguments[1])))))
        return
    previous = None
    for scale in arguments or ["1/16", "1/4", "1/1"]:
        command = [sys.executable, __file__, "--one", scale]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(output)
        line = (
            f"scale {scale}: {result['blocks']:,} blocks, {result['county_geounits']:,} county, "
            f"{result['tract_geounits']:,} tract and {result['block_group_geounits']:,} block "
            f"group geounits; spine {result['spine_seconds']:.1f} s, peak "
            f"{result['spine_peak_gib']:.2f} GiB; report {result['report_seconds']:.1f} s, peak "
            f"{result['report_peak_gib']:.2f} GiB"
        )
        if previous is not None:
            growth = result["spine_seconds"] / previous["spine_seconds"]
            size = result["blocks"] / previous["blocks"]
            line += f"; {growth:.1f} times the time for {size:.1f} times the blocks"
        print(line, flush=True)
        previous = result
    for title in ("distances", "standard_deviations"):
        print(f"\n| {title} | entities | spine | {' | '.join(STATISTICS)} |")
        print("|---|---:|---|" + "---:|" * len(STATISTICS))
        for row in sorted(previous[title], key=lambda row: (row["category"], row["spine"])):
            figures = " | ".join(f"{row[name]:,.4g}" for name in STATISTICS)
            print(f"| {row['category']} | {row['entities']:,} | {row['spine']} | {figures} |")


if __name__ == "__main__":
    main(sys.argv[1:])
