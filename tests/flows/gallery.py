"""The inputs of the gallery of declared censuses: small, and nobody lives there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def write_register(folder: Path) -> None:
    """Two regions of 12 districts: 200 dwellings, and the persons who are registered in them."""
    rng = np.random.default_rng(1)
    number = np.arange(12)
    areas = pd.DataFrame(
        {
            "region": np.array(["Norðurland", "Suðurland"])[number // 6],
            "municipality": [f"s{n // 3}" for n in number],
            "district": [f"{101 + n}" for n in number],
            "postcode": [f"{600 + n // 2}" for n in number],
        }
    )
    areas.to_csv(folder / "areas.csv", index=False)
    dwellings = pd.DataFrame(
        {
            "id": [f"F{n}" for n in range(200)],
            "district": rng.choice(areas["district"], 200),
            "kind": rng.choice(["1", "2", "3", "9"], 200),
            "tenure": rng.choice(["E", "L", ""], 200),
        }
    )
    dwellings.to_parquet(folder / "dwellings.parquet")
    home = np.repeat(np.arange(200), rng.integers(0, 6, 200))
    persons = pd.DataFrame(
        {
            "dwelling": dwellings["id"].to_numpy()[home],
            "sex": rng.choice(["K", "M"], len(home)),
            "age": rng.integers(0, 100, len(home)),
            "born_in": rng.choice(["IS", "DK", "SE", "PL", "other"], len(home)),
            "income": rng.choice(["0", "1"], len(home)),
        }
    )
    persons.to_parquet(folder / "persons.parquet")


def write_households(folder: Path) -> None:
    """Two provinces of 12 enumeration areas: 150 forms with one to seven members each."""
    rng = np.random.default_rng(2)
    number = np.arange(12)
    areas = pd.DataFrame(
        {
            "province": np.array(["Est", "Ouest"])[number // 6],
            "commune": [f"c{n // 3 % 2}" for n in number],
            "enumeration area": [f"{n % 3 + 1:03}" for n in number],
            "locality": rng.choice(["Marché", "Port", ""], 12),
        }
    )
    areas.to_csv(folder / "areas.csv", index=False)
    households = areas.iloc[rng.integers(0, 12, 150), :3].assign(
        number=np.arange(150), water=rng.integers(1, 5, 150)
    )
    households.to_csv(folder / "households.csv", index=False)
    members = []
    for form in range(150):
        for line in range(int(rng.integers(1, 8))):
            is_spouse = line == 1 and rng.random() < 0.6
            relation = 1 if line == 0 else 2 if is_spouse else int(rng.integers(3, 6))
            age = int(rng.integers(15 if relation < 3 else 0, 90))
            school = 0 if age < 5 else int(rng.integers(0, 4))
            sex = int(rng.integers(1, 3))
            members.append((form, relation, sex, age, school))
    columns = ["household", "relation", "sex", "age", "school"]
    pd.DataFrame(members, columns=columns).to_csv(folder / "people.csv", index=False)


def write_homes(folder: Path) -> None:
    """Two parishes of eight sections: 120 homes, a tenth of them empty, and an institution."""
    rng = np.random.default_rng(4)
    number = np.arange(8)
    columns = ["parish", "section"]
    areas = pd.DataFrame(
        {
            "parish": np.array(["Vale", "Forest"])[number // 4],
            "section": [f"{n % 4 + 1}" for n in number],
        }
    )
    areas.to_csv(folder / "areas.csv", index=False)
    homes = areas.iloc[rng.integers(0, 8, 120)].assign(
        id=np.arange(120), tenure=rng.choice(["o", "r", "x"], 120)
    )
    homes.to_csv(folder / "homes.csv", index=False)
    home = np.repeat(np.arange(120), rng.choice([0, 1, 2, 3, 5, 7], 120))
    is_first = np.append(True, home[1:] != home[:-1])
    people = homes.iloc[home][columns].assign(
        home=home.astype(str),
        relation=np.where(is_first, 1, rng.integers(2, 5, len(home))),
        sex=rng.choice(["w", "m"], len(home)),
        age=np.where(is_first, rng.integers(20, 95, len(home)), rng.integers(0, 90, len(home))),
    )
    elsewhere = areas.iloc[[5] * 12].assign(
        home="", relation=9, sex="w", age=rng.integers(70, 100, 12)
    )
    pd.concat([people, elsewhere]).to_csv(folder / "people.csv", index=False)


def write_schools(folder: Path) -> None:
    """Three departments of 9 school districts: 30 schools, and pupils of whom some go to two."""
    rng = np.random.default_rng(3)
    number = np.arange(9)
    areas = pd.DataFrame(
        {
            "department": np.array(["01", "2A", "971"])[number // 3],
            "school district": [f"D{n}" for n in number],
            "overseas": np.where(number // 3 == 2, "yes", "no"),
        }
    )
    areas.to_csv(folder / "areas.csv", index=False)
    stage = rng.choice(["P", "C", "L", "LP"], 30)
    schools = pd.DataFrame(
        {
            "uai": [f"E{n:02}" for n in range(30)],
            "school district": rng.choice(areas["school district"], 30),
            "stage": stage,
            "sponsor": rng.choice(["0", "1", "2"], 30),
        }
    )
    schools.to_csv(folder / "schools.csv", index=False)
    at = np.repeat(np.arange(30), rng.integers(20, 90, 30))
    low = pd.Series(stage[at]).map({"P": 1, "C": 6, "L": 10, "LP": 10}).to_numpy()
    high = pd.Series(stage[at]).map({"P": 5, "C": 9, "L": 12, "LP": 12}).to_numpy()
    boards = rng.choice(["0", "1", ""], len(at))
    pupils = pd.DataFrame(
        {
            # Numbers go round, so that a tenth come twice.
            "pupil": np.arange(len(at)) % (9 * len(at) // 10),
            "school": schools["uai"].to_numpy()[at],
            "grade": rng.integers(low, high + 1),
            "sex": rng.choice(["f", "m"], len(at)),
            "boarder": np.where(stage[at] == "P", "0", boards),
        }
    )
    pupils.to_csv(folder / "pupils.csv", index=False)


GALLERY = {
    "register": write_register,
    "households": write_households,
    "homes": write_homes,
    "schools": write_schools,
}
"""Writers of the input of each declaration, by the name of its file."""

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "gallery"
DECLARATIONS = [(FOLDER / f"{name}.toml").read_text(encoding="utf-8") for name in GALLERY]
"""The settings files, in the order of `GALLERY`."""
