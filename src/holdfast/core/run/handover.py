"""At which report a planned end of an attempt is, and when an attempt without any report is placed again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, RankStatus, RunState


def handover_point(state: RunState, reports: Mapping[int, int]) -> int | None:
    """The first report that no rank can have made yet, once all ranks that have not returned know of the end.
    ``reports``: by rank, how many it had made when it heard of the end.
    """
    if not reports or not state.attempt_lives:
        return None
    running = {rank for rank, known in enumerate(state.ranks) if known.status is not RankStatus.RETURNED}
    return max(reports.values()) + 1 if running <= reports.keys() else None


def place_again(state: RunState, is_well_placed: bool) -> ev.HandedOver | None:
    """Some nodes must not be used any more. An attempt on them continues if it has made reports, or if the other nodes
    are not enough. Otherwise it is placed again: its ranks may wait for each other for a long time, and there is no
    work to lose."""
    has_begun = any(rank.reports for rank in state.ranks)
    if state.attempt_lives and state.world_size is not None and not has_begun and not is_well_placed:
        return ev.HandedOver(state.attempt_number, HandoverReason.RESIZE)
    return None


def not_started(attempt_number: int) -> ev.HandedOver:
    """A node was lost between the decision to start an attempt and its start: it is decided again."""
    return ev.HandedOver(attempt_number, HandoverReason.RESIZE)
