"""The figures of docs/benchmarks.md as bar charts in docs/pictures/, so that no figure is written twice.

    make pictures

The benchmarks write their tables into that page and call this program; a test compares the charts with the page. The
colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
PAGE, PICTURES = DOCS / "benchmarks.md", DOCS / "pictures"
WIDTH, NAMES, VALUES, ROW, BAR, HEAD, GAP = 520, 100, 76, 26, 16, 28, 18
STYLE = (
    ".bars text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}"
    ".bars .head{font-weight:600}.bars rect{fill:#9aa4af}.bars .own{fill:#009485}"
    "@media(prefers-color-scheme:dark){.bars text{fill:#e6edf3}.bars rect{fill:#6e7a88}.bars .own{fill:#2dd4bf}}"
)


@dataclass(frozen=True)
class Panel:
    """One question and its bars: cells of the table of one benchmark."""

    title: str
    section: str
    cells: dict[str, tuple[str, str]]  # the bar's name: the beginning of its row, and its column


def systems(column: str, *names: str) -> dict[str, tuple[str, str]]:
    return {name: (name, column) for name in names}


RECOVERY = Panel(
    "Worker killed, until the next training step",
    "recovery",
    systems("kill to first step", "Holdfast", "torchrun", "Ray Train"),
)
NODE = Panel(
    "Node killed with a spare, until the next step",
    "nodes",
    {name: (f"node killed, with a spare node | {name}", "event to next step") for name in ("Holdfast", "Ray Train")},
)
SMALLER = Panel(
    "Node killed, continues on the others",
    "nodes",
    {name: (f"node killed, continues with 1 | {name}", "event to next step") for name in ("Holdfast", "Ray Train")},
)
JOINS = Panel(
    "Node joins, until a step uses it",
    "nodes",
    {name: (f"node joins, continues with 2 | {name}", "event to next step") for name in ("Holdfast", "Ray Train")},
)
START = Panel(
    "From python script.py to the train function",
    "cold_start",
    {"import torch": ("`python", "time"), **systems("time", "Holdfast", "torchrun", "Ray Train")},
)
STALL = Panel(
    "Training stall per 1 GB checkpoint, excluding the save",
    "checkpoint_stall",
    {
        "Holdfast": ("Holdfast", "stall after the save"),
        "Ray, ASYNC": ("Ray Train, ASYNC", "stall after the save"),
        "Ray, default": ("Ray Train, SYNC", "stall after the save"),
    },
)
MEMORY = Panel("Memory of a run with two workers", "memory", systems("all", "Holdfast", "torchrun", "Ray Train"))
TRIALS = Panel(
    "Trivial trials, a process each (more is better)",
    "tuning",
    {name: ("trivial trials", name) for name in ("Holdfast", "Ray Tune")},
)
RESTORE = Panel(
    "Restore an experiment of 1,000 finished trials",
    "tuning",
    {name: ("restore of 1,000", name) for name in ("Holdfast", "Ray Tune")},
)
CHARTS = {
    "headline": (RECOVERY, NODE, START, TRIALS),
    "nodes": (NODE, SMALLER, JOINS),
    "stall": (STALL,),
    "memory": (MEMORY,),
    "tuning": (TRIALS, RESTORE),
}


def table(page: str, section: str) -> tuple[list[str], list[str]]:
    """The headings of a benchmark's table, and its rows as text."""
    found = re.search(rf"<!-- results: {section} -->(.*?)<!-- end of results: {section} -->", page, re.DOTALL)
    rows = [line for line in found[1].splitlines() if line.startswith("|")] if found else []
    if len(rows) < 3:
        raise SystemExit(
            f"{PAGE.name} has no table of {section}. Run: make benchmark BENCHMARK_ARGS='--only {section}'"
        )
    return [cell.strip() for cell in rows[0].strip("|").split("|")], [row.strip("| ") for row in rows[2:]]


def figures(page: str, panel: Panel) -> dict[str, tuple[float, str]]:
    """Of each bar the number and how it is written."""
    columns, rows = table(page, panel.section)
    result = {}
    for name, (begins, column) in panel.cells.items():
        row = next((row for row in rows if row.startswith(begins)), None)
        if row is None or column not in columns:
            raise SystemExit(f"{PAGE.name}: the table of {panel.section} has no row {begins!r} or no column {column!r}")
        cell = [part.strip() for part in row.split("|")][columns.index(column)]
        written = cell.partition("[")[0].strip()
        result[name] = (float(re.match(r"[\d,.]+", written)[0].replace(",", "")), written)  # type: ignore[index]
    return result


def draw(page: str, panels: tuple[Panel, ...]) -> str:
    parts, y = [], 0
    for panel in panels:
        parts.append(f'<text class="head" x="0" y="{y + 16}">{escape(panel.title)}</text>')
        y += HEAD
        found = figures(page, panel)
        largest = max(value for value, _ in found.values())
        for name, (value, written) in found.items():
            width = max(2.0, value / largest * (WIDTH - NAMES - VALUES))
            own = ' class="own"' if name == "Holdfast" else ""
            parts.append(f'<text x="0" y="{y + 15}">{escape(name)}</text>')
            parts.append(f'<rect{own} x="{NAMES}" y="{y + 2}" width="{width:.1f}" height="{BAR}" rx="2"/>')
            parts.append(f'<text x="{NAMES + width + 8:.1f}" y="{y + 15}">{escape(short(written))}</text>')
            y += ROW
        y += GAP
    title = "; ".join(panel.title for panel in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" viewBox="0 0 {WIDTH} {y - GAP}" width="{WIDTH}" '
        f'role="img" aria-label="{escape(title)}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def short(written: str) -> str:
    """As one says it: 2,140 ms is 2.1 s, 94.0 a second is 94 / s."""
    number, _, unit = written.partition(" ")
    value = Decimal(number.replace(",", ""))
    if unit == "ms" and value >= 1000:
        value, unit = value / 1000, "s"
    places = max(0, 1 - value.adjusted())  # two digits that say something
    text = f"{value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"
    return f"{text} {unit.replace('a second', '/ s')}"


def write(page: Path = PAGE, pictures: Path = PICTURES) -> None:
    text = page.read_text()
    for name, panels in CHARTS.items():
        (pictures / f"{name}.svg").write_text(draw(text, panels))


if __name__ == "__main__":
    write()
