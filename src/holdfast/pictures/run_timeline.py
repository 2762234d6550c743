"""The recovery timeline of a run: drivers, attempts, failures and checkpoints over time, as bars placed by percent.

Text comes from stored runs: everything goes through ``shown``, so that it can be nothing but characters. Each kind of
mark has a shape of its own, so that colours are never the only difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from holdfast.printable import duration, printable
from holdfast.runs.attempt_history import (
    FAILED,
    KILLED,
    PLANNED,
    RUNNING,
    AttemptHistory,
    AttemptSpan,
    FailureAccount,
    SavedCheckpoint,
)
from holdfast.runs.pending_checkpoints import PendingCheckpoint

_MOST = 300  # marks in a lane
_NODES = 16  # lanes
_TICKS = 6
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800)


def shown(text: object, limit: int = 400) -> str:
    """Text as HTML: what a page's reader sees of it is characters only."""
    plain = printable(str(text))
    return escape(plain if len(plain) <= limit else f"{plain[: limit - 1]}…")


def run_timeline(history: AttemptHistory, pending: Sequence[PendingCheckpoint] = (), link: str | None = None) -> str:
    """``link``: the page that has an element ``failure-N`` for each failure; None if there is none."""
    if not history.attempts and not history.drivers:
        return '<p class="soft">Nothing has happened yet. The timeline starts with the first driver.</p>'
    scale = _Scale(history.began, history.ended)
    lanes = [
        _lane("Driver", _drivers(history, scale)),
        _lane("Attempt", _attempts(history, scale), "tall"),
        *_nodes(history, scale),
        _lane("Failure", _failures(history.failures, scale, link)) if history.failures else "",
        _lane("Checkpoint", [*_checkpoints(history, scale), *_pending(pending, scale)]),
        _lane("Storage behind", _stretches(history.stalls, scale, "stall", "training waited for storage")),
        _lane("No capacity", _stretches(history.waits, scale, "wait", "waited for nodes")),
    ]
    picture = "".join([*lanes, _axis(scale)])
    label = _summary(history)
    return f'<div class="timeline" role="group" aria-label="{label}">{picture}</div>{_legend(history, pending)}'


class _Scale:
    def __init__(self, began: float, ended: float) -> None:
        self.began, self.whole = began, max(ended - began, 1e-3)

    def at(self, time: float) -> float:
        return min(100.0, max(0.0, (time - self.began) / self.whole * 100))

    def span(self, began: float, ended: float) -> str:
        left = self.at(began)
        return f"left:{left:.3f}%;width:{max(0.15, self.at(ended) - left):.3f}%"


def _summary(history: AttemptHistory) -> str:
    return (
        f"{len(history.attempts)} attempts, {len(history.failures)} failures and {len(history.saved)} checkpoints in "
        f"{duration(history.ended - history.began)}"
    )


def _lane(label: str, marks: Iterable[str], kind: str = "") -> str:
    inside = "".join(marks)
    if not inside:
        return ""
    return f'<div class="tl-row"><span class="tl-label">{label}</span><div class="tl-lane {kind}">{inside}</div></div>'


def _drivers(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    for span in history.drivers[-_MOST:]:
        kind = {RUNNING: "running", KILLED: "killed"}.get(span.outcome, "over")
        title = f"driver {span.epoch}, {duration(span.ended - span.began)}: {span.outcome}"
        yield (
            f'<span class="tl-bar driver {kind}" style="{scale.span(span.began, span.ended)}" title="{shown(title)}">'
            f"{span.epoch}</span>"
        )


def _attempts(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    most = max((span.world_size for span in history.attempts), default=1) or 1
    for span in history.attempts[-_MOST:]:
        kind = {RUNNING: "running", FAILED: "failed", PLANNED: "planned", KILLED: "killed"}.get(span.outcome, "over")
        height = max(45.0, span.world_size / most * 100)
        yield (
            f'<span class="tl-bar attempt {kind}" style="{scale.span(span.began, span.ended)};height:{height:.0f}%" '
            f'title="{shown(_told(span))}">{span.number}<small> · {_workers(span.world_size)}</small></span>'
        )


def _told(span: AttemptSpan) -> str:
    since = f"from {span.resume} (report {span.base:,})" if span.resume else "from the beginning"
    nodes = f" on {len(span.nodes)} nodes" if len(span.nodes) > 1 else ""
    took = duration(span.ended - span.began)
    return f"attempt {span.number}: {_workers(span.world_size)}{nodes} {since}, {took}, {span.outcome}"


def _workers(count: int) -> str:
    return f"{count:,} worker{'' if count == 1 else 's'}"


def _nodes(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    """A lane for each node of a cluster: when it took part, and what failed there."""
    names = list(dict.fromkeys(node for span in history.attempts for node in span.nodes))
    for name in names[:_NODES]:
        spans = [span for span in history.attempts if name in span.nodes][-_MOST:]
        bars = [
            f'<span class="tl-bar node" style="{scale.span(span.began, span.ended)}" '
            f'title="{shown(name)} in attempt {span.number}"></span>'
            for span in spans
        ]
        yield _lane(shown(name, 24), [*bars, *_failures([f for f in history.failures if f.node == name], scale, None)])
    if len(names) > _NODES:
        yield f'<div class="tl-row"><span class="tl-label">{len(names) - _NODES:,} more nodes</span></div>'


def _failures(failures: Sequence[FailureAccount], scale: _Scale, link: str | None) -> Iterator[str]:
    for failure in failures[-_MOST:]:
        title = f"{failure.text} [{failure.kind}]; {failure.action}"
        tag, target = ("span", "") if link is None else ("a", f' href="{escape(link)}#failure-{failure.number}"')
        place = f'style="left:{scale.at(failure.time):.3f}%"'
        yield f'<{tag} class="tl-mark failure"{target} {place} title="{shown(title)}">✕</{tag}>'


def _checkpoints(history: AttemptHistory, scale: _Scale) -> Iterator[str]:
    resumed = history.resumed
    for saved in _thinned(history.saved, resumed):
        is_resumed = saved.id in resumed
        title = f"{saved.id}, report {saved.report:,}{': an attempt resumed from it' if is_resumed else ''}"
        kind, sign = ("resumed", "◆") if is_resumed else ("", "")
        yield (
            f'<span class="tl-mark saved {kind}" style="left:{scale.at(saved.time):.3f}%" title="{shown(title)}">'
            f"{sign}</span>"
        )


def _pending(pending: Sequence[PendingCheckpoint], scale: _Scale) -> Iterator[str]:
    for one in pending[-_MOST:]:
        title = f"pending since {duration(max(0.0, scale.began + scale.whole - one.since))}: not saved yet"
        yield f'<span class="tl-mark pending" style="left:{scale.at(one.since):.3f}%" title="{shown(title)}"></span>'


def _legend(history: AttemptHistory, pending: Sequence[PendingCheckpoint]) -> str:
    """Of the marks that are there."""
    outcomes = {span.outcome for span in history.attempts}
    known = [
        ("running", "tl-bar attempt running", "", RUNNING in outcomes),
        ("attempt", "tl-bar attempt", "", bool(outcomes - {RUNNING})),
        ("ended by a failure", "tl-bar attempt failed", "", FAILED in outcomes),
        ("driver killed", "tl-bar attempt killed", "", KILLED in outcomes),
        ("failure", "tl-mark failure", "✕", bool(history.failures)),
        ("checkpoint saved", "tl-mark saved", "", bool(history.saved)),
        ("resumed from", "tl-mark saved resumed", "◆", bool(history.resumed)),
        ("pending", "tl-mark pending", "", bool(pending)),
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
        yield f'<span class="tl-bar {kind}" style="{scale.span(began, ended)}" title="{title}"></span>'


def _axis(scale: _Scale) -> str:
    step = next((step for step in _STEPS if scale.whole / step <= _TICKS), scale.whole / _TICKS)
    ticks = [number * step for number in range(int(scale.whole / step) + 1)]
    marks = [
        f'<span class="tl-tick" style="left:{tick / scale.whole * 100:.3f}%">{_tick_text(tick)}</span>'
        for tick in ticks
        if tick / scale.whole < 0.94
    ]
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
