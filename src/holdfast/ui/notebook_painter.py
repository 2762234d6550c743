"""The display in a Jupyter notebook: one output that is replaced during training, instead of lines of red text.

Reported text may come from others: it is escaped, so that nothing in a notebook runs it. The plots are SVG, which needs
no script.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from html import escape
from typing import Any

from holdfast.printable import printable
from holdfast.ui.display_picture import (
    DisplayNotice,
    OutputLine,
    Picture,
    Progress,
    Rate,
    clean,
    headline,
    pick_metrics,
    rate_text,
    value_text,
)

EVERY_S = 0.5
_LINES = 12
_WARNINGS = 20
_WARNED = "warning: "  # else it is a trial that failed, which is among the failures
_PLOTS, _POINTS = 3, 200
_WIDTH, _HEIGHT = 260, 70
_COLOURS = {"running": "#009e73", "finished": "#0072b2", "failed": "#d55e00"}


def notebook_output() -> Any | None:
    """An output of the cell that runs, to be replaced later; None outside a notebook. Call it in the cell's thread."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display  # type: ignore[import-not-found]

    return display(HTML(""), display_id=True)


def replaced(cell: Any) -> Callable[[str], None]:
    """What puts HTML in the place of an output."""

    def update(html: str) -> None:
        from IPython.display import HTML

        cell.update(HTML(html))

    return update


class NotebookPainter:
    """``output`` has ``update(html)``. ``progress`` says how far a run is, and ``facts`` what else is shown of it."""

    def __init__(
        self,
        output: Callable[[str], None],
        progress: Progress | None = None,
        facts: Callable[[Any], list[tuple[str, str]]] | None = None,
    ) -> None:
        self._output, self._progress, self._facts = output, progress, facts
        self._rate = Rate()
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._warnings: list[str] = []
        self._left_out = 0
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._seen = 0
        self._next = float("-inf")

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None:
        rate = self._rate.update(now, picture.reports)
        for item in news:
            if isinstance(item, OutputLine):
                who = "" if item.rank is None else f"(rank {item.rank}) "
                self._lines.append(f"{who}{clean(item.text)}")
            elif item.kind == "warning" and item.text.startswith(_WARNED):
                self._warn(item.text.removeprefix(_WARNED))
            elif item.kind in ("failure", "warning", "finish"):
                self._lines.append(headline(item.text))
        self._remember(picture)
        if now >= self._next or final:
            self._next = now + EVERY_S
            self._output(self._html(picture, rate))

    def _warn(self, text: str) -> None:
        """Show repeated lines once. Of very many lines, the first and the last ones stay."""
        if text in self._warnings:
            return
        self._warnings.append(text)
        if len(self._warnings) > _WARNINGS:
            del self._warnings[_WARNINGS // 2]
            self._left_out += 1

    def _warned(self) -> str:
        """A block that does not scroll: a warning says that settings have changed, or that results are of an earlier
        run."""
        if not self._warnings:
            return ""
        shown = [f"⚠ {_safe_lines(text)}" for text in self._warnings]
        if self._left_out:
            shown.insert(_WARNINGS // 2, f"({self._left_out:,} more)")
        told = "".join(f"<div>{text}</div>" for text in shown)
        return (
            '<div style="border-left:4px solid #e69f00;padding:2px 0 2px 10px;margin:6px 0;white-space:pre-wrap;'
            f'overflow-wrap:anywhere">{told}</div>'
        )

    def _remember(self, picture: Picture) -> None:
        if picture.reports == self._seen:
            return
        self._seen = picture.reports
        for name, value in pick_metrics(picture.metrics, 8):
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                points = self._curves.setdefault(name, [])
                while points and points[-1][0] >= picture.reports:  # a recovery took reports back
                    points.pop()
                points.append((float(picture.reports), float(value)))
                if len(points) > 2 * _POINTS:
                    del points[1::2]

    def _html(self, picture: Picture, rate: float | None) -> str:
        tone = _COLOURS.get(picture.state, "#777")
        share, text = self._progress(picture.metrics, picture.reports) if self._progress else (None, "")
        facts = (
            [("attempt", str(picture.attempt_number)), ("workers", str(picture.world_size))]
            if picture.world_size
            else []
        )
        facts += [("reports", f"{picture.reports:,}{f' ({rate_text(rate)})' if rate is not None else ''}")]
        facts += [("failures", str(picture.failure_count))] if picture.failure_count else []
        facts += [("checkpoint", picture.checkpoint[0])] if picture.checkpoint else []
        facts += self._facts(picture) if self._facts else []
        facts += [(name, value_text(value)) for name, value in pick_metrics(picture.metrics, 6)]
        failures = "".join(
            f'<div style="color:#d55e00">✕ {_safe(": ".join(filter(None, (headline(one.text), one.action))))}</div>'
            for one in picture.failures
        )
        lines = "\n".join(_safe(line) for line in self._lines)
        return (
            '<div style="border:1px solid #8884;border-radius:8px;padding:10px 14px;font-size:13px;max-width:900px">'
            f'<b>{_safe(picture.name)}</b> <span style="border:1px solid {tone};color:{tone};border-radius:9px;'
            f'padding:0 8px">{_safe(picture.state)}</span> '
            f'<span style="opacity:.7">{_safe(headline(picture.detail))}</span>'
            f"{_bar(share, text)}{self._warned()}"
            f'<div style="margin:6px 0">{" ".join(map(_fact, facts))}</div>{failures}'
            f'<div style="display:flex;flex-wrap:wrap;gap:14px">{"".join(self._plots())}</div>'
            f'<pre style="font-size:12px;max-height:14em;overflow:auto;margin:6px 0 0">{lines}</pre></div>'
        )

    def _plots(self) -> list[str]:
        changing = [
            (name, points)
            for name, points in self._curves.items()
            if len({y for _, y in points}) > 1 and len({y - x for x, y in points}) > 1  # a counter says nothing
        ]
        return [f"<div>{_safe(name)}<br>{_sparkline(points)}</div>" for name, points in changing[:_PLOTS]]


def _safe(text: str) -> str:
    return escape(printable(text))


def _safe_lines(text: str) -> str:
    """All of it, with its ends of lines."""
    return escape("\n".join(clean(line) for line in text.splitlines()))


def _fact(fact: tuple[str, str]) -> str:
    name, value = fact
    return f'<span style="margin-right:12px"><span style="opacity:.65">{_safe(name)}</span> {_safe(value)}</span>'


def _bar(share: float | None, text: str) -> str:
    if share is None:
        return ""
    return (
        f'<div style="margin-top:6px"><progress max="1" value="{share:.4f}" style="width:16em"></progress> '
        f"{_safe(text)}</div>"
    )


def _sparkline(points: list[tuple[float, float]]) -> str:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    drawn = " ".join(
        f"{(x - min(xs)) / wide * _WIDTH:.1f},{_HEIGHT - 4 - (y - min(ys)) / high * (_HEIGHT - 8):.1f}"
        for x, y in points
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" style="background:#8881;border-radius:4px">'
        f'<polyline fill="none" stroke="#0072b2" stroke-width="2" points="{drawn}"/></svg>'
        f'<div style="opacity:.65;font-size:11px">{min(ys):.4g} to {max(ys):.4g}</div>'
    )
