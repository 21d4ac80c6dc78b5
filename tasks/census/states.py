"""What a geographic header says of a state: public codes of the Census Bureau and of the GNIS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """A state: FIPS code, postal abbreviation, census region and division, GNIS code, name."""

    fips: str
    abbreviation: str
    region: str
    division: str
    gnis: str
    name: str


_LINES = """\
01 AL 3 6 01779775 Alabama
02 AK 4 9 01785533 Alaska
04 AZ 4 8 01779777 Arizona
05 AR 3 7 00068085 Arkansas
06 CA 4 9 01779778 California
08 CO 4 8 01779779 Colorado
09 CT 1 1 01779780 Connecticut
10 DE 3 5 01779781 Delaware
11 DC 3 5 01702382 District of Columbia
12 FL 3 5 00294478 Florida
13 GA 3 5 01705317 Georgia
15 HI 4 9 01779782 Hawaii
16 ID 4 8 01779783 Idaho
17 IL 2 3 01779784 Illinois
18 IN 2 3 00448508 Indiana
19 IA 2 4 01779785 Iowa
20 KS 2 4 00481813 Kansas
21 KY 3 6 01779786 Kentucky
22 LA 3 7 01629543 Louisiana
23 ME 1 1 01779787 Maine
24 MD 3 5 01714934 Maryland
25 MA 1 1 00606926 Massachusetts
26 MI 2 3 01779789 Michigan
27 MN 2 4 00662849 Minnesota
28 MS 3 6 01779790 Mississippi
29 MO 2 4 01779791 Missouri
30 MT 4 8 00767982 Montana
31 NE 2 4 01779792 Nebraska
32 NV 4 8 01779793 Nevada
33 NH 1 1 01779794 New Hampshire
34 NJ 1 2 01779795 New Jersey
35 NM 4 8 00897535 New Mexico
36 NY 1 2 01779796 New York
37 NC 3 5 01027616 North Carolina
38 ND 2 4 01779797 North Dakota
39 OH 2 3 01085497 Ohio
40 OK 3 7 01102857 Oklahoma
41 OR 4 9 01155107 Oregon
42 PA 1 2 01779798 Pennsylvania
44 RI 1 1 01219835 Rhode Island
45 SC 3 5 01779799 South Carolina
46 SD 2 4 01785534 South Dakota
47 TN 3 6 01325873 Tennessee
48 TX 3 7 01779801 Texas
49 UT 4 8 01455989 Utah
50 VT 1 1 01779802 Vermont
51 VA 3 5 01779803 Virginia
53 WA 4 9 01779804 Washington
54 WV 3 5 01779805 West Virginia
55 WI 2 3 01779806 Wisconsin
56 WY 4 8 01779807 Wyoming
72 PR 9 0 01779808 Puerto Rico
"""

STATES: Mapping[str, State] = {line[:2]: State(*line.split(" ", 5)) for line in _LINES.splitlines()}
"""By FIPS code."""


def state_of(fips: str) -> State:
    """The state of a FIPS code; one that no state has stands for itself."""
    return STATES.get(fips) or State(fips, fips, "", "", "", fips)
