"""``Result`` and ``ResultGrid`` as the rich output of a notebook: no script, and every text of a run is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.pictures.plots import Line, chart
from holdfast.pictures.run_timeline import shown

_PLOTS, _POINTS = 4, 400
_STYLE = (
    "<style>.holdfast-result svg{max-width:100%;height:auto}.holdfast-result svg text{fill:currentColor;font-size:12px}"
    ".holdfast-result svg .grid{stroke:#8884}.holdfast-result svg .axis{stroke:#888;fill:none}"
    ".holdfast-result .legend{display:none}"
    ".holdfast-result td,.holdfast-result th{text-align:left;padding:2px 12px 2px 0}"
    "</style>"
)


def result_html(
    path: str, error: str, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], facts: Mapping[str, str]
) -> str:
    """``metrics`` and ``rows`` by flat names."""
    state = '<b style="color:#d55e00">✕ failed</b>' if error else '<b style="color:#0072b2">✓ result</b>'
    told = f'<pre style="max-height:12em;overflow:auto">{shown(error, 2000)}</pre>' if error else ""
    cells = {**facts, **{name: _text(value) for name, value in metrics.items()}}
    table = "".join(f"<tr><td>{shown(name, 60)}</td><td>{shown(value, 200)}</td></tr>" for name, value in cells.items())
    return (
        f'<div class="holdfast-result">{_STYLE}{state} <code>{shown(path)}</code>{told}'
        f"<table><tbody>{table}</tbody></table>{''.join(_plots(rows))}</div>"
    )


def grid_html(path: str, summary: str, header: Sequence[str], rows: Sequence[Sequence[str]], share: float) -> str:
    head = "".join(f"<th>{shown(name, 40)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{shown(cell, 80)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="holdfast-result">{_STYLE}<b>{shown(summary)}</b> <code>{shown(path)}</code><br>'
        f'<progress max="1" value="{share:.4f}" style="width:16em"></progress>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _plots(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    step = max(1, len(rows) // _POINTS)
    thin = list(enumerate(rows, start=1))[::step]
    drawn: list[str] = []
    for name in rows[-1] if rows else ():
        points = [(float(x), float(row[name])) for x, row in thin if _is_number(row.get(name))]
        if len({y for _, y in points}) > 1 and len(drawn) < _PLOTS:
            drawn.append(f"<div><b>{shown(name, 60)}</b>{chart([Line(name, [points])], 'report')}</div>")
    return drawn


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
