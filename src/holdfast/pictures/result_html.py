"""``Result`` and ``ResultGrid`` as the rich output of a notebook: no script, and every text of a run is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.pictures.plots import Line, chart
from holdfast.pictures.run_timeline import shown

_PLOTS, _POINTS = 4, 400
_CURVES = 8  # the number of colours
_STYLE = """<style>
.holdfast-result { border: 1px solid #8884; border-radius: 8px; padding: 10px 14px; max-width: 900px; font-size: 13px }
.holdfast-result svg { width: 100%; height: auto } .holdfast-result svg text { fill: currentColor; font-size: 16px }
.holdfast-result svg .grid { stroke: #8884 } .holdfast-result svg .axis { stroke: #888; fill: none }
.holdfast-result .plots { display: grid; gap: 12px } .holdfast-result .curves { max-width: 620px; margin-top: 8px }
.holdfast-result .plots { grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr)) }
.holdfast-result .plots .legend { display: none } .holdfast-result .legend { margin: 0; font-size: 11px }
.holdfast-result .legend span, .holdfast-result .facts span { margin-right: 12px; display: inline-block }
.holdfast-result .facts span { overflow-wrap: anywhere; max-width: 100% }
.holdfast-result .legend i { display: inline-block; width: 1.4em; height: .35em; margin-right: .4em }
.holdfast-result .facts i { font-style: normal; opacity: .65 } .holdfast-result .scroll { overflow-x: auto }
.holdfast-result table { font-size: inherit }
.holdfast-result td, .holdfast-result th { text-align: left; padding: 2px 12px 2px 0 }
</style>"""


def result_html(
    path: str, error: str, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], facts: Mapping[str, str]
) -> str:
    """``metrics`` and ``rows`` by flat names."""
    state = '<b style="color:#d55e00">✕ failed</b>' if error else '<b style="color:#0072b2">✓ result</b>'
    told = f'<pre style="max-height:12em;overflow:auto">{shown(error, 2000)}</pre>' if error else ""
    cells = {**facts, **{name: _text(value) for name, value in metrics.items()}}
    named = [f"<span><i>{shown(name, 60)}</i> {shown(value, 200)}</span>" for name, value in cells.items()]
    return (
        f'<div class="holdfast-result">{_STYLE}{state} <code>{shown(path)}</code>{told}'
        f'<p class="facts">{"".join(named)}</p><div class="plots">{"".join(_plots(rows))}</div></div>'
    )


def grid_html(
    path: str,
    summary: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    share: float,
    curves: Sequence[tuple[str, Sequence[Any]]] = (),
) -> str:
    """``curves``: the values that the first trials reported, by their names."""
    head = "".join(f"<th>{shown(name, 40)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{shown(cell, 80)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="holdfast-result">{_STYLE}<b>{shown(summary)}</b> <code>{shown(path)}</code><br>'
        f'<progress max="1" value="{share:.4f}" style="width:16em"></progress>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{_learning(curves)}</div>"
    )


def _learning(curves: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """The curves of several trials in one chart. A trial with a single value has no curve."""
    lines = []
    for name, values in curves[:_CURVES]:
        step = max(1, len(values) // _POINTS)
        points = [(float(x), float(y)) for x, y in enumerate(values, start=1) if _is_number(y) and x % step == 0]
        if len(points) > 1:
            lines.append(Line(name[:60], [points]))
    return f'<div class="curves"><b>Best trials</b>{chart(lines, "report")}</div>' if lines else ""


def _plots(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    step = max(1, len(rows) // _POINTS)
    thin = list(enumerate(rows, start=1))[::step]
    drawn: list[str] = []
    for name in rows[-1] if rows else ():
        points = [(float(x), float(row[name])) for x, row in thin if _is_number(row.get(name))]
        is_counter = len({y - x for x, y in points}) == 1  # such as an epoch, which says nothing
        if len({y for _, y in points}) > 1 and not is_counter and len(drawn) < _PLOTS:
            drawn.append(f"<div><b>{shown(name, 60)}</b>{chart([Line(name, [points])], 'report')}</div>")
    return drawn


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
