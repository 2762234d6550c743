"""A drill's report as one HTML file: no script, no network; the plots are inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from holdfast.drill import table
from holdfast.drill.compare import counterparts
from holdfast.drill.rehearsal import Report
from holdfast.drill.verdict import PROBLEM

_WIDTH, _HEIGHT, _MARGIN = 640, 200, 44
_PLOTS = 3
_COLOURS = ("#1b6ca8", "#c0392b", "#27864a", "#8e44ad", "#b9770e", "#117a8b", "#7f5539", "#566573")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #1c1c1c }
table { border-collapse: collapse; width: 100% } 
td, th { text-align: left; padding: .3em .8em .3em 0; vertical-align: top }
tr { border-bottom: 1px solid #ddd } code { font-size: 90% } .bad { color: #b3261e; font-weight: 600 }
.good { color: #1e7a3c; font-weight: 600 } .remedy { color: #444; margin: 0 0 1em 1.5em } 
svg { max-width: 100%; height: auto }
"""


class Line(NamedTuple):
    label: str
    values: list[float | None]  # by step, from 1; None where there is no number
    colour: str
    mark: int | None = None  # the step where the fault struck


def page(report: Report) -> str:
    state, steps = "passed" if report.passed else "FAILED", max(len(run.rows) for run in report.undisturbed)
    script = escape(" ".join([report.script.rpartition("/")[2], *report.args]))
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Drill of {script}</title>',
        f"<style>{_STYLE}</style></head><body><h1>Drill of <code>{script}</code>: ",
        f'<span class="{"good" if report.passed else "bad"}">{state}</span></h1>',
        f"<p>Seed {report.seed}. Undisturbed: {steps} steps, {report.undisturbed_s:.1f} s.</p>",
        *_faults(report),
        *_verdicts(report),
        *_plots(report),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _faults(report: Report) -> Iterator[str]:
    yield "<table><thead><tr>" + "".join(f"<th>{name}</th>" for name in ("", *table.HEADER)) + "</tr></thead><tbody>"
    for result in report.results:
        sign = '<td class="good">passed</td>' if result.passed else '<td class="bad">failed</td>'
        yield f"<tr>{sign}" + "".join(f"<td>{escape(cell)}</td>" for cell in table.cells(result)) + "</tr>"
    yield "</tbody></table>"


def _verdicts(report: Report) -> Iterator[str]:
    yield "<h2>What to mend</h2>" if report.verdicts else "<h2>Nothing to mend</h2>"
    for finding, faults in report.verdicts:
        label = '<span class="bad">Problem</span>' if finding.severity == PROBLEM else "Advice"
        by = f" <small>({escape(', '.join(map(str, faults)))})</small>" if faults else ""
        yield f"<p>{label}: {escape(finding.text)}{by}</p>"
        if finding.remedy:
            yield f'<p class="remedy">{escape(finding.remedy)}</p>'
    for name, why in report.skipped:
        yield f"<p>Skipped: {escape(name)}: {escape(why)}</p>"


def _plots(report: Report) -> Iterator[str]:
    longest = max(report.undisturbed, key=lambda run: len(run.rows))
    at = report.undisturbed.index(longest)
    for name in _numbers(longest.rows)[:_PLOTS]:
        lines = [Line("undisturbed", _series(longest.rows, name), "#999")]
        for number, result in enumerate(report.results):
            runs = counterparts(report.undisturbed, result.runs)
            if at < len(runs):
                values = _series(runs[at].rows, name)
                lines.append(Line(str(result.fault), values, _COLOURS[number % len(_COLOURS)], result.struck_at))
        yield f"<h2>{escape(name)} by step</h2>"
        yield _chart(lines)
    yield "<h2>From the fault to the next step</h2>"
    yield _bars([(str(result.fault), result.next_step_s) for result in report.results])
    yield "<h2>Steps that were done again</h2>"
    yield _bars([(str(result.fault), float(result.lost)) for result in report.results], unit="")


def _numbers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics that are numbers and change."""
    names = [name for name, value in rows[-1].items() if _number(value) is not None]
    return [name for name in names if len(set(_series(rows, name))) > 1]


def _number(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else None


def _series(rows: Sequence[dict[str, Any]], name: str) -> list[float | None]:
    return [_number(row.get(name)) for row in rows]


def _chart(lines: Sequence[Line]) -> str:
    known = [value for line in lines for value in line.values if value is not None]
    low, high = min(known), max(known)
    steps = max(len(line.values) for line in lines)

    def at(step: int, value: float) -> tuple[float, float]:
        x = _MARGIN + (step - 1) / max(1, steps - 1) * (_WIDTH - 2 * _MARGIN)
        return x, _HEIGHT - 24 - (value - low) / ((high - low) or 1.0) * (_HEIGHT - 40)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">', _axis(low, high, steps)]
    for line in lines:
        points = [at(step, value) for step, value in enumerate(line.values, start=1) if value is not None]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        width = 5 if line.mark is None else 1.5
        parts.append(
            f'<polyline fill="none" stroke="{line.colour}" stroke-width="{width}" points="{text}">'
            f"<title>{escape(line.label)}</title></polyline>"
        )
        struck = line.values[line.mark - 1] if line.mark is not None and line.mark <= len(line.values) else None
        if line.mark is not None and struck is not None:
            x, y = at(line.mark, struck)
            tip = f"<title>{escape(line.label)}</title>"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{line.colour}">{tip}</circle>')
    return "".join([*parts, "</svg>"])


def _axis(low: float, high: float, steps: int) -> str:
    right, bottom = _WIDTH - _MARGIN, _HEIGHT - 24
    texts = [
        (4, bottom, f"{low:.3g}"),
        (4, 20, f"{high:.3g}"),
        (_MARGIN, _HEIGHT - 6, "1"),
        (right, _HEIGHT - 6, f"{steps}"),
    ]
    words = "".join(f'<text x="{x}" y="{y}" font-size="11">{text}</text>' for x, y, text in texts)
    return f'<path d="M{_MARGIN} 12V{bottom}H{right}" fill="none" stroke="#bbb"/>{words}'


def _bars(rows: Sequence[tuple[str, float | None]], unit: str = " s") -> str:
    most = max([value for _, value in rows if value is not None], default=0.0) or 1.0
    height = 22 * len(rows)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for number, (label, value) in enumerate(rows):
        y = 22 * number
        parts.append(f'<text x="0" y="{y + 15}" font-size="11">{escape(label)}</text>')
        if value is not None:
            width = value / most * (_WIDTH - 330)
            parts.append(f'<rect x="260" y="{y + 4}" width="{width:.1f}" height="14" fill="{_COLOURS[0]}"/>')
        shown = "-" if value is None else f"{value:.3g}{unit}"
        x = 266 + (0 if value is None else value / most * (_WIDTH - 330))
        parts.append(f'<text x="{x:.1f}" y="{y + 15}" font-size="11">{shown}</text>')
    return "".join([*parts, "</svg>"])
