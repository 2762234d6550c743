"""The recovery timeline of a run: drivers, attempts, failures and checkpoints over time, as bars placed by percent.

All text comes from stored runs and passes through ``shown``, which leaves only plain characters. Each kind of mark has
its own shape or pattern, so that colours are never the only difference. The Tab key reaches the first mark of a lane.
With the script of the pages, the arrow keys reach the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from holdfast.printable import duration, printable
from holdfast.runs.attempt_history import (
    BY_STANDBY,
    FAILED,
    KILLED,
    MOVED,
    NOT_LIVE,
    PLANNED,
    REPLACED,
    RUNNING,
    AttemptHistory,
    AttemptSpan,
    FailureAccount,
    LiveMoment,
    SavedCheckpoint,
)
from holdfast.runs.pending_checkpoints import PendingCheckpoint

_MOST = 300  # marks in a lane
_PASSED_OVER, _REACHED = ' tabindex="-1"', ' tabindex="0"'  # that the Tab key reaches
_NODES = 16  # lanes
_TICKS = 6
_GAPS = 8  # how many stretches without a driver may be drawn short
_IDLE_SHARE, _GAP_SHARE = 0.4, 0.15  # of the whole time, to be shortened; of the rest, once they are
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800)
_LIVE_SIGNS = {  # of live recovery, with what the legend says
    REPLACED: ("↻", "a new process took a rank, the other ranks kept theirs"),
    BY_STANDBY: ("▲", "a standby worker took a rank, the other ranks kept their processes"),
    MOVED: ("→", "a rank moved to another node"),
    NOT_LIVE: ("⊘", "the lost rank could not be replaced alone"),
}


def shown(text: object, limit: int = 400) -> str:
    """Text as HTML, in which everything is plain characters."""
    plain = printable(str(text))
    return escape(plain if len(plain) <= limit else f"{plain[: limit - 1]}…")


def run_timeline(history: AttemptHistory, pending: Sequence[PendingCheckpoint] = (), link: str | None = None) -> str:
    """``link``: a page that has an element ``failure-N`` for each failure, or None."""
    if not history.attempts and not history.drivers:
        return '<p class="soft">Nothing has happened yet. The timeline starts with the first driver.</p>'
    scale = _Scale(history.began, history.ended, _idle(history))
    lanes = [
        _lane("Driver", [*_gaps(scale), *_drivers(history, scale)]),
        _lane("Attempt", _attempts(history, scale), "tall"),
        *_nodes(history, scale),
        _lane("Failure", _failures(history.failures, scale, link)) if history.failures else "",
        _lane("Live recovery", _live(history.live, scale), "recovered"),
        _lane("Checkpoint", [*_checkpoints(history, scale), *_pending(pending, scale)]),
        _lane("Storage behind", _stretches(history.stalls, scale, "stall", "training waited for storage")),
        _lane("No capacity", _stretches(history.waits, scale, "wait", "waited for nodes")),
    ]
    picture = "".join([*lanes, _axis(scale)])
    note = "" if not scale.gaps else f'<p class="tl-note">{_told_gaps(scale)}</p>'
    label = _summary(history)
    timeline = f'<div class="timeline" role="group" aria-label="{label}">{picture}</div>'
    return f'{timeline}<p class="tl-told"></p>{note}{_legend(history, pending)}'


class _Scale:
    """Converts times to percent. Long stretches without a driver are drawn short, because nothing happens in them."""

    def __init__(self, began: float, ended: float, idle: Sequence[tuple[float, float]] = ()) -> None:
        self.began, self.ended = began, max(ended, began + 1e-3)
        whole = self.ended - began
        busy = max(whole - sum(end - start for start, end in idle), 1e-3)
        self.gaps = list(idle) if whole - busy > _IDLE_SHARE * whole else []
        short = 0.0 if not self.gaps else busy * _GAP_SHARE / len(self.gaps)
        edges = [began, *(time for gap in self.gaps for time in gap), self.ended]
        self.parts = list(zip(edges[::2], edges[1::2], strict=True))  # the time in which things happen
        self._lengths = [length for part in self.parts for length in (part[1] - part[0], short)][:-1]
        self._edges, self.whole = edges, max(sum(self._lengths), 1e-3)

    def at(self, time: float) -> float:
        length = 0.0
        for (start, end), drawn in zip(itertools.pairwise(self._edges), self._lengths, strict=True):
            if time < end:
                share = 0.0 if end <= start else max(0.0, time - start) / (end - start)
                return min(100.0, (length + share * drawn) / self.whole * 100)
            length += drawn
        return 100.0

    def span(self, began: float, ended: float) -> str:
        left = self.at(began)
        return f"left:{left:.3f}%;width:{max(0.15, self.at(ended) - left):.3f}%"


def _idle(history: AttemptHistory) -> list[tuple[float, float]]:
    """The longest stretches between two drivers, in order."""
    found = [(earlier.ended, later.began) for earlier, later in itertools.pairwise(history.drivers)]
    longest = sorted((gap for gap in found if gap[1] > gap[0]), key=lambda gap: gap[0] - gap[1])[:_GAPS]
    return sorted(longest)


def _gaps(scale: _Scale) -> Iterator[str]:
    for began, ended in scale.gaps:
        title = f"no driver for {duration(ended - began)}; drawn short"
        yield _bar("gap", scale.span(began, ended), title)


def _told_gaps(scale: _Scale) -> str:
    idle = duration(sum(end - start for start, end in scale.gaps))
    return f"{idle} without a driver {'is' if len(scale.gaps) == 1 else 'are'} drawn short (hatched)."


def _summary(history: AttemptHistory) -> str:
    lived = sum(moment.kind in (REPLACED, BY_STANDBY) for moment in history.live)
    live = f", {lived} live {'recovery' if lived == 1 else 'recoveries'}" if lived else ""
    return (
        f"{len(history.attempts)} attempts, {len(history.failures)} failures{live} and "
        f"{len(history.saved)} checkpoints in {duration(history.ended - history.began)}"
    )


def _lane(label: str, marks: Iterable[str], kind: str = "") -> str:
    inside = "".join(marks)
    if not inside:
        return ""
    inside = inside.replace(_PASSED_OVER, _REACHED, 1)
    return f'<div class="tl-row"><span class="tl-label">{label}</span><div class="tl-lane {kind}">{inside}</div></div>'


def _bar(kind: str, place: str, title: str, inside: str = "") -> str:
    return f'<span class="tl-bar {kind}" style="{place}" title="{title}" role="img"{_PASSED_OVER}>{inside}</span>'


def _mark(kind: str, left: float, title: str, sign: str = "", target: str | None = None) -> str:
    tag, more = ("span", ' role="img"') if target is None else ("a", f' href="{target}"')
    return f'<{tag} class="tl-mark {kind}" style="left:{left:.3f}%" title="{title}"{more}{_PASSED_OVER}>{sign}</{tag}>'


def _drivers(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    for span in history.drivers[-_MOST:]:
        kind = {RUNNING: "running", KILLED: "killed"}.get(span.outcome, "over")
        title = f"driver {span.epoch}, {duration(span.ended - span.began)}: {span.outcome}"
        yield _bar(f"driver {kind}", scale.span(span.began, span.ended), shown(title), str(span.epoch))


def _attempts(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    most = max((span.world_size for span in history.attempts), default=1) or 1
    for span in history.attempts[-_MOST:]:
        kind = {RUNNING: "running", FAILED: "failed", PLANNED: "planned", KILLED: "killed"}.get(span.outcome, "over")
        height = max(45.0, span.world_size / most * 100)
        place = f"{scale.span(span.began, span.ended)};height:{height:.0f}%"
        inside = f"{span.number}<small> · {_workers(span.world_size)}</small>"
        yield _bar(f"attempt {kind}", place, shown(_told(span)), inside)


def _told(span: AttemptSpan) -> str:
    since = f"from {span.resume} (report {span.base:,})" if span.resume else "from the beginning"
    nodes = f" on {len(span.nodes)} nodes" if len(span.nodes) > 1 else ""
    took = duration(span.ended - span.began)
    return f"attempt {span.number}: {_workers(span.world_size)}{nodes} {since}, {took}, {span.outcome}"


def _workers(count: int) -> str:
    return f"{count:,} worker{'' if count == 1 else 's'}"


def _nodes(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    """A lane for each node of a cluster. It shows when the node took part, and what failed there."""
    names = list(dict.fromkeys(node for span in history.attempts for node in span.nodes))
    for name in names[:_NODES]:
        spans = [span for span in history.attempts if name in span.nodes][-_MOST:]
        bars = [
            _bar(
                "node",
                scale.span(span.joined.get(name, span.began), span.ended),
                f"{shown(name)} in attempt {span.number}{', from when a rank moved to it' * (name in span.joined)}",
            )
            for span in spans
        ]
        yield _lane(shown(name, 24), [*bars, *_failures([f for f in history.failures if f.node == name], scale, None)])
    if len(names) > _NODES:
        yield f'<div class="tl-row"><span class="tl-label">{len(names) - _NODES:,} more nodes</span></div>'


def _failures(failures: Sequence[FailureAccount], scale: _Scale, link: str | None) -> Iterator[str]:
    for failure in failures[-_MOST:]:
        title = f"{failure.text} [{failure.kind}]; {failure.action}"
        target = None if link is None else f"{escape(link)}#failure-{failure.number}"
        yield _mark("failure", scale.at(failure.time), shown(title), "✕", target)


def _live(found: Sequence[LiveMoment], scale: _Scale) -> Iterator[str]:
    for moment in found[-_MOST:]:
        yield _mark(f"recovered {moment.kind}", scale.at(moment.time), shown(moment.text), _LIVE_SIGNS[moment.kind][0])


def _checkpoints(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    resumed = history.resumed
    for saved in _thinned(history.saved, resumed):
        is_resumed = saved.id in resumed
        title = f"{saved.id}, report {saved.report:,}{': an attempt resumed from it' if is_resumed else ''}"
        kind, sign = ("resumed", "◆") if is_resumed else ("", "")
        yield _mark(f"saved {kind}".strip(), scale.at(saved.time), shown(title), sign)


def _pending(pending: Sequence[PendingCheckpoint], scale: _Scale) -> Iterator[str]:
    for one in pending[-_MOST:]:
        title = f"pending since {duration(max(0.0, scale.ended - one.since))}: not saved yet"
        yield _mark("pending", scale.at(one.since), shown(title))


def _legend(history: AttemptHistory, pending: Sequence[PendingCheckpoint]) -> str:
    """Explains the marks that occur."""
    outcomes, lived = {span.outcome for span in history.attempts}, {moment.kind for moment in history.live}
    known = [
        ("running", "tl-bar attempt running", "", RUNNING in outcomes),
        ("attempt", "tl-bar attempt", "", bool(outcomes - {RUNNING})),
        ("ended by a failure", "tl-bar attempt failed", "", FAILED in outcomes),
        ("handed over as planned", "tl-bar attempt planned", "", PLANNED in outcomes),
        ("driver killed", "tl-bar attempt killed", "", KILLED in outcomes),
        ("failure", "tl-mark failure", "✕", bool(history.failures)),
        *((text, f"tl-mark recovered {kind}", sign, kind in lived) for kind, (sign, text) in _LIVE_SIGNS.items()),
        ("checkpoint saved", "tl-mark saved", "", bool(history.saved)),
        ("resumed from", "tl-mark saved resumed", "◆", bool(history.resumed)),
        ("pending", "tl-mark pending", "", bool(pending)),
        ("training waited for storage", "tl-bar stall", "", bool(history.stalls)),
        ("waited for nodes", "tl-bar wait", "", bool(history.waits)),
    ]
    shown_marks = [
        f'<span><i class="{kind}">{sign}</i>{text}</span>' for text, kind, sign, is_there in known if is_there
    ]
    return f'<p class="tl-legend">{"".join(shown_marks)}</p>'


def _thinned(saved: Sequence[SavedCheckpoint], resumed: set[str]) -> list[SavedCheckpoint]:
    step = max(1, len(saved) // _MOST)
    return [one for number, one in enumerate(saved) if number % step == 0 or one.id in resumed][-2 * _MOST :]


def _stretches(found: Sequence[tuple[float, float]], scale: _Scale, kind: str, text: str) -> Iterator[str]:
    for began, ended in found[-_MOST:]:
        title = f"{text}, {duration(ended - began)}"
        yield _bar(kind, scale.span(began, ended), title)


def _axis(scale: _Scale) -> str:
    busy = sum(end - start for start, end in scale.parts)
    step = next((step for step in _STEPS if busy / step <= _TICKS), busy / _TICKS)
    marks = []
    for start, end in scale.parts:
        first = math.ceil((start - scale.began) / step - 1e-9)
        for number in range(first, math.floor((end - scale.began) / step + 1e-9) + 1):
            left = scale.at(scale.began + number * step)
            if left < 94:
                marks.append(f'<span class="tl-tick" style="left:{left:.3f}%">{_tick_text(number * step)}</span>')
    return f'<div class="tl-row axis"><span class="tl-label"></span><div class="tl-lane">{"".join(marks)}</div></div>'


def _tick_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} m" if whole % 60 == 0 else f"{whole // 60} m {whole % 60} s"
    if whole < 172800:
        return f"{whole // 3600} h" if whole % 3600 == 0 else f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d"
