"""How pages lie in a browser: nothing is clipped at 1280 pixels, what decides is in view at 400."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from spineflow.tasks.pages.document import Document, FrontPage, Link, Section, Table, to_html
from spineflow.tasks.pages.figures import bar_chart, strip_chart

WORDS = "the shares along every path from the root to a block add to exactly 1"
CHECKS = Table(
    ("universe", "check", "outcome", "what it saw"),
    (("persons", "privacy loss of paths", "passed", WORDS),) * 3,
    "outcome",
)
WIDE = Table(
    tuple(f"a column of words {n}" for n in range(8)),
    (tuple(["46066969010197/17508174012729 (about 2.631)", "one record changed", 1.0, "rho"] * 2),),
)

MEASURE = """<script>
const place = (found) => { const r = found.getBoundingClientRect(); return [r.left, r.right]; };
addEventListener("load", () => {
  const scrolled = [...document.querySelectorAll(".scroll")];
  const told = {
    width: innerWidth,
    page: document.documentElement.scrollWidth,
    clipped: scrolled.filter((part) => part.scrollWidth > part.clientWidth + 1).length,
    cut: [...document.querySelectorAll("main *:not(svg *)")].filter((part) => {
      const r = part.getBoundingClientRect();
      return r.width > 0 && r.right > innerWidth + 1 && !part.closest(".scroll");
    }).length,
    downloads: [...document.querySelectorAll("a[download]")].map(place),
    deciding: [...document.querySelectorAll("td.deciding")].map(place),
    contents: place(document.querySelector("nav")),
    heading: place(document.querySelector("h1")),
  };
  const shown = document.createElement("pre");
  shown.textContent = JSON.stringify(told);
  document.body.append(shown);
});
</script>"""


@pytest.fixture(scope="module")
def page() -> str:
    bars = bar_chart(["State"], {"rho": [1.0]}, title="Budget", value_label="rho")
    strip = strip_chart({"ingest": 1.0}, title="Time", value_label="seconds")
    front = FrontPage(
        "Released: all 3 checks passed.",
        True,
        WORDS,
        tuple(Section(title, (svg,)) for title, svg in (("Budget", bars), ("Time", strip))),
        (Link("Certificate", "certificate.html"),),
    )
    sections = [Section(f"Part {n}", (WORDS, CHECKS)) for n in range(5)]
    document = Document("A report", (WORDS,), (*sections, Section("Wide", (WIDE,))), None, front)
    return to_html(document).replace("</body>", f"{MEASURE}</body>")


def measured(page: str, width: int, folder: Path) -> dict:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium")
    inner, outer = folder / "page.html", folder / "frame.html"
    inner.write_text(page, encoding="utf-8")
    # A window is never narrower than 500 pixels, a frame is; its page tells its parent the figures.
    read = "document.querySelector('iframe').contentDocument.querySelector('pre').textContent"
    outer.write_text(
        f'<body style="margin:0"><iframe src="page.html" width="{width}" height="900" '
        'style="border:0"></iframe><script>addEventListener("load", () => setTimeout(() => '
        f"{{ document.body.innerHTML = '<pre>' + {read} }}, 100))</script>",
        encoding="utf-8",
    )
    shown = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--virtual-time-budget=5000",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={max(width, 500)},900",
            "--dump-dom",
            outer.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"<pre>(.*?)(</pre>|</body>)", shown.stdout, flags=re.DOTALL)
    assert found, shown.stderr
    figures = json.loads(html.unescape(found.group(1)))
    assert figures["width"] == width
    return figures


def test_at_1280_nothing_is_clipped_and_contents_stand_beside(page: str, tmp_path: Path) -> None:
    found = measured(page, 1280, tmp_path)
    assert found["page"] <= 1280 and found["clipped"] == 0
    assert found["contents"][1] <= found["heading"][0]


def test_at_400_the_deciding_column_is_in_view(page: str, tmp_path: Path) -> None:
    found = measured(page, 400, tmp_path)
    assert found["page"] <= 400 and found["clipped"] > 0 and found["cut"] == 0
    assert len(found["downloads"]) == 6
    assert all(0 <= left < right <= 400 for left, right in found["downloads"])
    assert len(found["deciding"]) == 15
    assert all(0 <= left < right <= 400 for left, right in found["deciding"])
