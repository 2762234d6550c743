"""The diagram of a run's phases, drawn from the machine's own table when the site is built.

On GitHub the page's Mermaid block is drawn by the browser. Here it becomes an SVG, so that no script has to be fetched:
the phases stand below each other, what leads on goes down on the right, what leads back goes up on the left.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from holdfast.core.phases import TRANSITIONS
from holdfast.core.state import Phase

WIDTH, BOX, HEIGHT, STEP, LANE, LEFT = 760, 120, 36, 78, 74, 120


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri != "state-diagram.md":
        return markdown
    return re.sub(r"```mermaid\n.*?```\n", lambda _: f"{drawn()}\n", markdown, flags=re.DOTALL)


def drawn() -> str:
    """The SVG. Transitions with the same ends share an arrow."""
    order = list(Phase)
    arrows: dict[tuple[int, int], list[str]] = {}
    for (was, trigger), now in TRANSITIONS.items():
        arrows.setdefault((order.index(was), order.index(now)), []).append(trigger)
    height = len(order) * STEP
    parts = [_arrow(was, now, triggers) for (was, now), triggers in arrows.items()]
    parts += [_box(place, phase.value) for place, phase in enumerate(order)]
    return (
        f'<svg class="state-diagram" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="The phases of a run" '
        'font-size="13" fill="currentColor" stroke="none">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>' + "".join(parts) + "</svg>"
    )


def _box(place: int, name: str) -> str:
    top = place * STEP + (STEP - HEIGHT) // 2
    return (
        f'<rect x="{LEFT}" y="{top}" width="{BOX}" height="{HEIGHT}" rx="8" fill="none" stroke="currentColor"/>'
        f'<text x="{LEFT + BOX // 2}" y="{top + HEIGHT // 2 + 5}" text-anchor="middle">{escape(name)}</text>'
    )


def _arrow(was: int, now: int, triggers: list[str]) -> str:
    middle = [place * STEP + STEP // 2 for place in (was, now)]
    if now == was + 1:
        x = LEFT + BOX // 2
        path = f"M{x} {middle[0] + HEIGHT // 2}V{middle[1] - HEIGHT // 2}"
        return _line(path) + _text(x + 8, sum(middle) // 2 + 4, ", ".join(triggers), "start")
    span = abs(now - was)
    if now > was:
        side, reach, anchor = LEFT + BOX, LEFT + BOX + span * LANE, "start"
    else:
        side, reach, anchor = LEFT, LEFT - 18 * span, "end"
    begin, end = middle[0] + (6 if now > was else -6), middle[1] - (6 if now > was else -6)
    path = f"M{side} {begin}C{reach} {begin} {reach} {end} {side} {end}"
    x = (side + 3 * reach) // 4
    return _line(path) + _text(x + (6 if now > was else -6), (begin + end) // 2 + 4, ", ".join(triggers), anchor)


def _line(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>'


def _text(x: int, y: int, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" opacity="0.8">{escape(words)}</text>'
