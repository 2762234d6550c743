"""The diagram of a run's phases, drawn from the machine's own table when the site is built.

On GitHub the page's Mermaid block is drawn by the browser. Here it becomes an SVG, so that no script has to be fetched:
the phases stand below each other, what leads on goes down on the right, what leads back goes up on the left.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from holdfast.core.run.phases import TRANSITIONS
from holdfast.core.run.state import Phase

WIDTH, BOX, HEIGHT, STEP, LANE, LEFT, LINE = 760, 120, 36, 104, 74, 120, 15


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
    farthest_first = sorted(arrows.items(), key=lambda arrow: -abs(arrow[0][1] - arrow[0][0]))
    parts = [_arrow(was, now, triggers) for (was, now), triggers in farthest_first]
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
        return _line(path) + _words(x + 8, sum(middle) // 2, triggers, "start")
    down = now > was
    side = LEFT + BOX if down else LEFT
    reach = side + abs(now - was) * (LANE if down else -18)
    begin, end = middle[0] + (6 if down else -6), middle[1] - (6 if down else -6)
    path = f"M{side} {begin}C{reach} {begin} {reach} {end} {side} {end}"
    x = (side + 3 * reach) // 4 + (6 if down else -6)
    return _line(path) + _words(x, (begin + end) // 2, triggers, "start" if down else "end")


def _line(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>'


def _words(x: int, middle: int, words: list[str], anchor: str) -> str:
    """One below the other, with the background around them so that no line runs through."""
    top = middle - LINE * (len(words) - 1) // 2 + 4
    halo = "paint-order:stroke;stroke:var(--md-default-bg-color);stroke-width:5px"
    return "".join(
        f'<text x="{x}" y="{top + LINE * place}" text-anchor="{anchor}" style="{halo}">{escape(word)}</text>'
        for place, word in enumerate(words)
    )
