"""Plots as inline SVG: lines over steps or seconds with ticks and a legend, and bars with labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 760, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 14, 12, 40
_TICKS = 5
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a0714f", "#7f8a94")  # Okabe and Ito
_DASHES = ("none", "7 4", "2 3", "10 3 2 3")
_ROW, _BAR_LEFT = 22, 290

Point = tuple[float, float]


class Line(NamedTuple):
    label: str
    pieces: list[list[Point]]  # each line consists of pieces, with gaps between them
    mark: Point | None = None  # where the fault happened
    is_base: bool = False  # drawn wide, behind the others


def chart(lines: Sequence[Line], across: str, note: str = "") -> str:
    """``across``: the label of the horizontal axis. A line without pieces shows only its mark, and is not in the
    legend."""
    known = [point for line in lines for piece in line.pieces for point in piece]
    if not known:
        return ""
    wide, high = _Scale.over([x for x, _ in known], whole=across == "step"), _Scale.over([y for _, y in known])
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">', *_axes(wide, high, across)]
    legend = []
    colours = _looks()
    for line in lines:
        colour, dash = ("#9aa3ab", "none") if line.is_base else next(colours)
        parts += _drawn(line, colour, dash, wide, high)
        if line.pieces:
            legend.append(f'<span><i style="background:{colour}"></i>{escape(line.label)}</span>')
    under = f'<p class="legend soft">{escape(note)}</p>' if note else ""
    return "".join([*parts, "</svg>", '<p class="legend">', *legend, "</p>", under])


def bars(rows: Sequence[tuple[str, float | None]], unit: str = "") -> str:
    most = max([value for _, value in rows if value is not None], default=0.0) or 1.0
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_ROW * len(rows)}" role="img">']
    for number, (label, value) in enumerate(rows):
        y, length = _ROW * number, 0.0 if value is None else value / most * (_WIDTH - _BAR_LEFT - 80)
        parts.append(f'<text x="0" y="{y + 15}">{escape(label)}</text>')
        if length:
            parts.append(
                f'<rect x="{_BAR_LEFT}" y="{y + 4}" width="{length:.1f}" height="14" rx="2" fill="{_COLOURS[0]}"/>'
            )
        shown = "-" if value is None else f"{value:.2f} {unit}" if unit else f"{value:g}"
        parts.append(f'<text x="{_BAR_LEFT + length + 6:.1f}" y="{y + 15}">{shown}</text>')
    return "".join([*parts, "</svg>"])


class _Scale(NamedTuple):
    low: float
    high: float
    ticks: list[float]

    @classmethod
    def over(cls, values: Sequence[float], whole: bool = False) -> _Scale:
        """An axis from the least to the greatest value, with ticks at round numbers."""
        low, high = min(values), max(values)
        if low == high:
            low, high = low - (abs(low) / 10 or 1.0), high + (abs(high) / 10 or 1.0)
        rough = (high - low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
        step = max(step, 1.0) if whole else step
        first = math.ceil(low / step - 1e-9)
        return cls(low, high, [step * number for number in range(first, math.floor(high / step + 1e-9) + 1)])

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


def _looks() -> Iterator[tuple[str, str]]:
    """Colours and dashes, so that lines that overlap can both be seen."""
    number = 0
    while True:
        yield _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        number += 1


def _at(point: Point, wide: _Scale, high: _Scale) -> Point:
    x = _LEFT + wide.share(point[0]) * (_WIDTH - _LEFT - _RIGHT)
    return x, _HEIGHT - _BOTTOM - high.share(point[1]) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(wide: _Scale, high: _Scale, across: str) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for tick in high.ticks:
        _, y = _at((wide.low, tick), wide, high)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_text(tick)}</text>'
    for tick in wide.ticks:
        x, _ = _at((tick, high.low), wide, high)
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{_text(tick)}</text>'
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
    yield f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">{escape(across)}</text>'


def _text(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:.4g}"


def _drawn(line: Line, colour: str, dash: str, wide: _Scale, high: _Scale) -> Iterator[str]:
    tip = f"<title>{escape(line.label)}</title>"
    width = 6 if line.is_base else 2
    for piece in line.pieces:
        text = " ".join("{:.1f},{:.1f}".format(*_at(point, wide, high)) for point in piece)
        yield (
            f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}" '
            f'stroke-linejoin="round" points="{text}">{tip}</polyline>'
        )
    if line.mark is not None and all(map(math.isfinite, line.mark)):
        x, y = _at(line.mark, wide, high)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}">{tip}</circle>'
