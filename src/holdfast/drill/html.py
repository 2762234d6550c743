"""A drill's report as one HTML file: no script, no network; the plots are inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from holdfast.drill import table
from holdfast.drill.drill_verdict import PROBLEM, Finding
from holdfast.drill.outcome import RunOutcome
from holdfast.drill.rehearsal import DrillReport, FaultResult
from holdfast.drill.run_comparison import counterparts
from holdfast.pictures import picture_styles
from holdfast.pictures.ledger_bar import ledger_bar
from holdfast.pictures.plots import Line, Point, bars, chart
from holdfast.pictures.run_timeline import run_timeline

_PLOTS = 3
_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --soft: #5c6670; --line: #d9dee2; --good: #1e7a3c; --bad: #b3261e;
  --box: #f4f6f8 }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8ea; --soft: #a0a9b1; --line: #3a4148; --good: #5cc98a;
  --bad: #ff8a80; --box: #22272c } body { background: #16191c } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: var(--text) }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin: 2em 0 .5em } .soft { color: var(--soft) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3em 1em .3em 0; vertical-align: top; white-space: nowrap }
td:last-child { white-space: normal; min-width: 14em } tr { border-bottom: 1px solid var(--line) }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
.finding { background: var(--box); border-left: 4px solid var(--line); margin: .8em 0; padding: .6em 1em;
  overflow-wrap: anywhere }
.finding.problem { border-color: var(--bad) } .finding p { margin: .2em 0 }
svg { display: block; max-width: 100%; height: auto } svg text { fill: var(--text); font-size: 12px }
svg .grid { stroke: var(--line); stroke-width: .6 } svg .axis { stroke: var(--soft); fill: none }
.legend { font-size: 13px; margin: .2em 0 0 } .legend span { margin-right: 1.2em; white-space: nowrap }
.legend i { display: inline-block; width: 1.4em; height: .35em; margin-right: .4em; vertical-align: middle }
"""


def page(report: DrillReport) -> str:
    state, steps = "passed" if report.passed else "FAILED", max(len(run.rows) for run in report.undisturbed)
    script = escape(" ".join([report.script.rpartition("/")[2], *report.args]))
    passed = sum(result.passed for result in report.results)
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Drill of {script}: {state}</title>",
        f"<style>{picture_styles()}{_STYLE}</style></head><body><h1>Drill of <code>{script}</code>: ",
        f'<span class="{"good" if report.passed else "bad"}">{state}</span></h1>',
        f'<p class="soft">{passed} of {len(report.results)} faults passed. Undisturbed: {steps} steps, '
        f"{report.undisturbed_s:.1f} s. Seed {report.seed}.</p>",
        *_verdicts(report),
        *_faults(report),
        *_metrics(report),
        *_progress(report),
        "<h2>From the fault to the next step</h2>",
        bars([(str(result.fault), result.next_step_s) for result in report.results], unit="s"),
        "<h2>Repeated steps</h2>",
        bars([(str(result.fault), float(result.lost)) for result in report.results]),
        *_recoveries(report),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _verdicts(report: DrillReport) -> Iterator[str]:
    problems = [one for one in report.verdicts if one[0].severity == PROBLEM]
    advice = [one for one in report.verdicts if one[0].severity != PROBLEM]
    for title, found in (("What to fix", problems), ("Advice", advice)):
        if found:
            yield f"<h2>{title}</h2>"
            yield from (_finding(finding, ", ".join(map(str, faults))) for finding, faults in found)


def _finding(finding: Finding, faults: str) -> str:
    remedy = f"<p>To fix it: {escape(finding.remedy)}.</p>" if finding.remedy else ""
    by = f'<p class="soft">Seen under {escape(faults)}</p>' if faults else ""
    return f'<div class="finding {finding.severity}"><p>{escape(finding.text)}</p>{remedy}{by}</div>'


def _faults(report: DrillReport) -> Iterator[str]:
    yield '<h2>Faults</h2><div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{name}</th>" for name in ("", *table.HEADER)) + "</tr></thead><tbody>"
    for result in report.results:
        sign = '<td class="good">passed</td>' if result.passed else '<td class="bad">failed</td>'
        yield f"<tr>{sign}" + "".join(f"<td>{escape(cell)}</td>" for cell in table.cells(result)) + "</tr>"
    for name, why in report.skipped:
        yield f'<tr class="soft"><td>skipped</td><td>{escape(name)}</td><td colspan="4">{escape(why)}</td></tr>'
    yield "</tbody></table></div>"


def _metrics(report: DrillReport) -> Iterator[str]:
    """The first few that say something: those that went another way before those that did not."""
    longest = max(report.undisturbed, key=lambda run: len(run.rows))
    at = report.undisturbed.index(longest)
    runs = [(result, run) for result in report.results if (run := _counterpart(report, result, at)) is not None]
    charts = []
    for name in _numbers(longest.rows):
        expected = _series(longest.rows, name)
        lines = [Line("undisturbed", _pieces(expected), is_base=True)]
        for result, run in runs:
            values = _series(run.rows, name)
            pieces = [] if values == expected else _pieces(values)
            lines.append(Line(str(result.fault), pieces, _struck(result, values)))
        differ = sum(bool(line.pieces) for line in lines[1:])
        if name not in report.left_out and (differ or not _is_counter(expected)):
            same = len(lines) - 1 - differ
            note = f"{same} of {len(lines) - 1} faults: as undisturbed; a dot is where one struck"
            charts.append((not differ, f"<h2>{escape(name)}</h2>{chart(lines, 'step', note)}"))
    yield from [text for _, text in sorted(charts, key=lambda one: one[0])[:_PLOTS]]


def _progress(report: DrillReport) -> Iterator[str]:
    """How far each run was, second by second: where it stood still, and how far it fell back."""
    longest = max(report.undisturbed, key=lambda run: len(run.rows))
    at = report.undisturbed.index(longest)
    lines = [Line("undisturbed", _walk(longest), is_base=True)]
    for result in report.results:
        run = _counterpart(report, result, at)
        if run is not None:
            lines.append(Line(str(result.fault), _walk(run)))
    yield "<h2>Steps over time</h2>"
    yield chart(lines, "seconds since the first report")


def _recoveries(report: DrillReport) -> Iterator[str]:
    """How each fault looks as a run's page shows it."""
    yield "<h2>Recoveries</h2>"
    for result in report.results:
        for run in result.runs:
            if run.history.attempts:
                yield f"<details><summary>{escape(str(result.fault))}</summary>"
                yield f"{run_timeline(run.history)}{ledger_bar(run.ledger)}</details>"


def _walk(run: RunOutcome) -> list[list[Point]]:
    """The reports of each attempt, with their seconds since the first of all."""
    first = min((times[0] for times in run.times.values() if times), default=0.0)
    made = [(attempt.base, run.times.get(attempt.attempt_number, [])) for attempt in run.attempts]
    return [[(time - first, float(base + n)) for n, time in enumerate(times, 1)] for base, times in made if times]


def _counterpart(report: DrillReport, result: FaultResult, at: int) -> RunOutcome | None:
    runs = counterparts(report.undisturbed, result.runs)
    return runs[at] if at < len(runs) else None


def _struck(result: FaultResult, values: Sequence[float | None]) -> Point | None:
    step = result.struck_at
    value = values[step - 1] if step is not None and 1 <= step <= len(values) else None
    return None if step is None or value is None else (float(step), value)


def _numbers(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics that are numbers and change."""
    names = [name for name, value in rows[-1].items() if _number(value) is not None]
    return [name for name in names if len(set(_series(rows, name))) > 1]


def _number(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else None


def _series(rows: Sequence[dict[str, Any]], name: str) -> list[float | None]:
    return [_number(row.get(name)) for row in rows]


def _pieces(values: Sequence[float | None]) -> list[list[Point]]:
    return [[(float(step), value) for step, value in enumerate(values, start=1) if value is not None]]


def _is_counter(values: Sequence[float | None]) -> bool:
    """Like a step or an epoch, for which a plot is useless."""
    return {b - a for a, b in pairwise(values) if a is not None and b is not None} == {1.0}
