"""A small declared census of people drawn at random, and what an office may say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from spineflow.tasks.ledger.recognition import InputDigest
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.settings import TopdownSettings


@dataclass(frozen=True)
class Office:
    """Tables of a small census, and what is said of them."""

    areas: pd.DataFrame
    people: pd.DataFrame
    levels: tuple[str, ...] = ("nation", "region", "town", "section")
    universe: str = "residents"
    attributes: Mapping[str, str] = field(
        default_factory=lambda: {
            "age": 'column = "age"\nbins = [0, 18, 40, 65]\nlargest = 110',
            "sex": 'column = "sex"\nlevels = { m = ["1"], f = ["2"] }',
            "work": 'column = "work"\nnumbers = [0, 39]',
        }
    )
    further: str = ""
    write: Callable[[pd.DataFrame, Path], str] | None = None

    def settings(
        self, folder: Path, *, dataset: str = "d", confidential: bool = True
    ) -> TopdownSettings:
        """Settings of a run on the universe, with the tables and a ledger beside them."""
        folder.mkdir(exist_ok=True)
        self.areas.to_csv(folder / "areas.csv", index=False)
        name = "people.csv"
        if self.write is None:
            self.people.to_csv(folder / name, index=False)
        else:
            name = self.write(self.people, folder)
        is_confidential = str(confidential).lower()
        declared = "".join(
            f"[census.attributes.{name}]\n{text}\n" for name, text in self.attributes.items()
        )
        (folder / "settings.toml").write_text(
            f'[input]\nareas = "areas.csv"\npeople = "{name}"\nconfidential = {is_confidential}\n'
            f'[privacy]\ndataset = "{dataset}"\nledger = "ledger.db"\n'
            f'[census.geography]\ntable = "areas"\ngeolevels = {list(self.levels)}\n{declared}'
            f'[census.universes.{self.universe}]\ntable = "people"\narea = "{self.levels[-1]}"\n'
            f"attributes = {list(self.attributes)}\n{self.further}\n"
            f'[geography]\nspine = "conventional"\n[run]\nuniverses = ["{self.universe}"]\n'
            + budget(self.universe, self.levels)
        )
        return load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)

    def digests(self, folder: Path, key: bytes) -> dict[str, InputDigest]:
        """What a ledger gets of the universe."""
        return check_input_of(self.settings(folder)).accepted().digests(key)


def budget(universe: str, levels: Sequence[str]) -> str:
    """Some budget, in equal shares."""
    shares = ", ".join(f'{level} = "1/{len(levels)}"' for level in levels)
    return (
        f'[budget.{universe}]\nrho = "1"\ndelta = "1e-10"\ngeolevels = {{ {shares} }}\n'
        'queries.other = { detailed = "1" }\n'
    )


def office(seed: int = 1, n: int = 9000) -> Office:
    """People drawn at random in 90 sections of 9 towns."""
    rng = np.random.default_rng(seed)
    section = np.arange(90)
    areas = pd.DataFrame(
        {"region": section // 30, "town": 100 + section // 10, "section": 1000 + section}
    )
    people = pd.DataFrame(
        {
            "section": 1000 + np.sort(rng.integers(0, 90, n)),
            "age": rng.integers(0, 100, n),
            "sex": rng.integers(1, 3, n),
            "work": rng.integers(0, 40, n),
        }
    )
    return Office(areas, people)
