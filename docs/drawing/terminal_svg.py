"""A terminal recording as an SVG: text of a real run, animated with CSS, readable on light and dark pages.

A recording is a list of frames: when it was seen, and its lines with their SGR colours, as ``tmux capture-pane -e``
prints them. A line that stays the same from frame to frame is drawn once, so the file stays small.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import escape

CHARACTER, LINE, MARGIN, BAR = 8.4, 19, 16, 30
INK, FAINT, PAPER, EDGE = "#d6deeb", "#8b98a9", "#0f1722", "#33415a"
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#f2cc60", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd", 37: INK, 90: FAINT}
_SGR = re.compile(r"\x1b\[([\d;]*)m")


@dataclass(frozen=True)
class Frame:
    at: float  # seconds since the recording began
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Style:
    colour: str = INK
    bold: bool = False
    faint: bool = False

    @property
    def ink(self) -> str:
        return FAINT if self.faint and self.colour == INK else self.colour

    def after(self, codes: list[int]) -> _Style:
        style = self
        for code in codes:
            if code == 0:
                style = _Style()
            elif code in (1, 2, 22):
                style = replace(style, bold=code == 1, faint=code == 2)
            elif code == 39:
                style = replace(style, colour=INK)
            elif code in COLOURS or code - 60 in COLOURS:
                style = replace(style, colour=COLOURS.get(code) or COLOURS[code - 60])
        return style


def draw(frames: list[Frame], columns: int, title: str, hold_s: float = 5.0) -> str:
    """The SVG. It plays in a loop and holds the last frame; a reader who asks for less motion sees that one only."""
    rows = max(len(frame.lines) for frame in frames)
    total = frames[-1].at + hold_s
    width, height = round(columns * CHARACTER + 2 * MARGIN), BAR + rows * LINE + 2 * MARGIN
    texts, rules = [], []
    for row, begin, end, line in _stretches(frames, total):
        y, mark = BAR + MARGIN + row * LINE + 14, ""
        if begin > 0 or end < total:
            name = f"t{len(rules)}"
            rules.append(_rule(name, begin / total * 100, end / total * 100, end >= total))
            mark = f' class="{name}{"" if end >= total else " x"}"'
        texts.append(f'<text y="{y}"{mark}>{line}</text>')
    style = (
        f"text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{INK};"
        f"white-space:pre}}[class]{{animation:{total:.2f}s step-end infinite}}{''.join(rules)}"
        "@media(prefers-reduced-motion:reduce){[class]{animation:none!important}.x{visibility:hidden}}"
    )
    dots = "".join(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="20" r="5" fill="{EDGE}"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9" fill="{PAPER}" stroke="{EDGE}"/>'
        f"{dots}{''.join(texts)}</svg>\n"
    )


def _stretches(frames: list[Frame], total: float) -> list[tuple[int, float, float, str]]:
    """Which line stands in which row, from when to when."""
    found: list[tuple[int, float, float, str]] = []
    standing: dict[int, tuple[float, str]] = {}
    rows = max(len(frame.lines) for frame in frames)
    for frame in [*frames, Frame(total, ())]:
        style = _Style()
        for row in range(rows):
            drawn, style = _spans(frame.lines[row], style) if row < len(frame.lines) else ("", style)
            begin, before = standing.get(row, (frame.at, ""))
            if drawn != before or frame.at == total:
                if before:
                    found.append((row, begin, frame.at, before))
                standing[row] = (frame.at, drawn)
    return found


def _rule(name: str, begin: float, end: float, stays: bool) -> str:
    steps = ["0%{visibility:hidden}"] if begin > 0 else []
    steps.append(f"{begin:.2f}%{{visibility:visible}}")
    if not stays:
        steps.append(f"{end:.2f}%{{visibility:hidden}}")
    return f"@keyframes {name}{{{''.join(steps)}}}.{name}{{animation-name:{name}}}"


def _spans(line: str, style: _Style) -> tuple[str, _Style]:
    """Each run of one style at its own column, so that a font of another width breaks no box; and the style at the
    beginning of the next line."""
    spans, column = [], 0
    parts = _SGR.split(line)
    for place, part in enumerate(parts):
        if place % 2:
            style = style.after([int(code or 0) for code in part.split(";")])
            continue
        bare = part.strip()
        if bare:
            x = MARGIN + (column + len(part) - len(part.lstrip())) * CHARACTER
            look = "" if style.ink == INK else f' fill="{style.ink}"'
            look += ' font-weight="700"' if style.bold else ""
            length = f' textLength="{len(bare) * CHARACTER:.1f}"' if len(bare) > 1 else ""
            spans.append(f'<tspan x="{x:.1f}"{length}{look}>{escape(bare)}</tspan>')
        column += len(part)
    return "".join(spans), style
