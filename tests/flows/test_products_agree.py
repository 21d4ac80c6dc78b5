"""Real census tables through topdown and group sizes: both publish the same exact counts.

Both state the housing units and group-quarters facilities of every region exactly, the one as rows
of microdata, the other as numbers of groups.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main

PARTS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE")
DIGITS = {"State": 2, "County": 5, "Tract": 11}

SETTINGS = """\
[input]
persons = "{folder}/CEF20_PER.txt.gz"
units = "{folder}/CEF20_UNIT.txt.gz"
geography = "{folder}/GRFC.txt"
[privacy]
dataset = "bristol"
[products.topdown]
preset = "pl94_2020_us"
run = {{ universes = ["units"] }}
release = {{ margins = false, tables = false }}
[products.group-sizes]
privacy = {{ epsilon = "1" }}
geography = {{ levels = ["US", "State", "County", "Tract"] }}
"""


def disagreements(run: Path) -> pd.DataFrame:
    """Regions whose units differ between the two releases of a run of products, level by level."""
    units = pd.read_parquet(run / "topdown" / "release" / "mdf_units.parquet", columns=list(PARTS))
    geocode = units[PARTS[0]].astype(str).str.cat([units[part].astype(str) for part in PARTS[1:]])
    totals = pd.read_parquet(run / "group-sizes" / "release" / "group_totals.parquet")
    found = []
    for level, own in totals.groupby("level"):
        region = geocode.str[: DIGITS[level]] if level in DIGITS else pd.Series("0", geocode.index)
        both = pd.DataFrame(
            {"topdown": region.value_counts(), "group-sizes": own.set_index("region")["groups"]}
        ).fillna(0)
        differ = both[both["topdown"] != both["group-sizes"]]
        found.append(differ.rename_axis("region").reset_index().assign(level=level))
    return pd.concat(found)


@pytest.mark.soak(5)
@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server", "uncompared")
def test_bristol_has_the_same_units_in_both_releases(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "ri2010_bristol_fixed_width"
    file = tmp_path / "products.toml"
    file.write_text(SETTINGS.format(folder=folder.resolve()), encoding="utf-8")
    run = tmp_path / "run"
    assert main(["run", "products", str(file), "--run-dir", str(run)]) == 0
    totals = pd.read_parquet(run / "group-sizes" / "release" / "group_totals.parquet")
    assert set(totals["level"]) == {"US", *DIGITS}
    assert disagreements(run).empty


if __name__ == "__main__":
    print(disagreements(Path(sys.argv[1])))
