"""Time and peak memory of a national redistricting spine on generated geographies.

Run `python tests/benchmarks/national_spine.py [SCALE ...]` from the repository's root; the
scales are fractions of the nation, 1/16, 1/4 and 1/1 if none are given. Each runs in a process
of its own, so that the peak memory is its own; the generated geography is part of it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARES = {"US": 104, "State": 1440, "County": 447, "Tract": 687, "Block_Group": 1256, "Block": 165}


def measure(scale: float) -> dict[str, float]:
    """Build the optimised spine and its report at a scale; seconds and GiB."""
    from geography.categories import off_spine_categories
    from geography.generate import (
        AIAN_RANGES,
        STRONG_MCD_STATES,
        NationalSizes,
        generate_geography,
    )
    from geography.spine import SpineRules, build_spine
    from geography.summary import summarise_spines

    rules = SpineRules(aian_ranges=AIAN_RANGES, strong_mcd_states=STRONG_MCD_STATES)
    shares = {name: Fraction(weight, 4099) for name, weight in SHARES.items()}

    def build(sizes: NationalSizes) -> dict[str, float]:
        geography, facilities = generate_geography(sizes)
        started = time.perf_counter()
        spine = build_spine(
            geography,
            geolevel_shares=shares,
            kind="optimized",
            rules=rules,
            is_pure=False,
            group_quarters=facilities,
        )
        built = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        categories = off_spine_categories(geography, rules, group_quarters=facilities)
        summarise_spines({"optimized": spine}, categories, is_pure=False)
        return {
            "blocks": spine.n_blocks,
            "county_geounits": len(spine.geolevel("County")),
            "tract_geounits": len(spine.geolevel("Tract")),
            "block_group_geounits": len(spine.geolevel("Block_Group")),
            "spine_seconds": built - started,
            "spine_peak_gib": peak,
            "report_seconds": time.perf_counter() - built,
            "report_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
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


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    main(sys.argv[1:])
