"""Checks how large attempts are, when they are resized, and that a planned end loses nothing. Judged by what the nodes
really did."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Durable, HandoverReason, Phase, RankStatus, RunSpec, RunState
from holdfast.core.run.timers import Timer

from .fates import Fates, expect
from .simulated_workers import Workers

_COUNTED = {
    HandoverReason.RESIZE: "an attempt was handed over to resize",
    HandoverReason.PREEMPTION: "an attempt was handed over before its node went",
    HandoverReason.STOP: "an attempt was handed over to stop",
}


_TELLING = {ev.Capacity, ev.DriverStarted, ev.CapacityLacking, ev.HandoverSet, ev.Progressed, ev.ShardStaged}


class Room:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._slots: int | None = None  # as the driver knows it; None: without limit
        self._point: int | None = None  # the report index that was last chosen for the attempt's end
        self._handed: tuple[int, int] | None = None  # the checkpoint that the last attempt ended at
        self._attempt_number = 0  # of the last attempt
        self._has_begun = False  # whether any report of the attempt arrived

    def stepped(self, event: ev.Event, after: RunState) -> None:
        kind = type(event)
        if kind not in _TELLING:
            return
        if isinstance(event, ev.Capacity):
            self._slots = event.slots
        elif isinstance(event, ev.DriverStarted):
            self._handed = None
        elif isinstance(event, ev.CapacityLacking):
            self._workers.count("a run waited for room")
        elif isinstance(event, ev.HandoverSet) and after.handover is not None and after.handover.index == event.index:
            self._point = event.index
        elif isinstance(event, ev.Progressed | ev.ShardStaged) and event.attempt_number == after.attempt_number:
            self._has_begun = True

    def _world(self, spec: RunSpec) -> int | None:
        least = spec.min_workers or spec.num_workers
        room = spec.num_workers if self._slots is None else min(self._slots, spec.num_workers)
        return room if room >= least else None

    def starts(self, event: ev.AttemptStarted, before: Durable, fates: Fates) -> None:
        fits = event.world_size == self._world(before.spec)
        expect(fits, "5 the world is within its range, and as large as there is room", f"{event}: {self._slots}")
        damaged = any(fates.owner(id) == self._handed for id in before.damaged)
        if self._handed is not None and not damaged and not fates.is_lost(self._handed):
            exact = event.base >= fates.report(self._handed)
            expect(exact, "7 a planned end loses no report", f"{event} after a hand-over at {self._handed}")
        self._attempt_number, self._point, self._handed, self._has_begun = event.attempt_number, None, None, False

    def handed_over(self, event: ev.HandedOver, fates: Fates) -> None:
        """There is a complete checkpoint at or after the chosen report, and ranks that wait there have made no further
        report. Or nothing was reported at all."""
        attempt = self._workers.attempts.get(event.attempt_number)
        if attempt is None or event.attempt_number != self._attempt_number:  # it did not fit, or has exited
            return
        if event.reason is HandoverReason.RESIZE and not self._has_begun:
            self._workers.count("an attempt was handed over before it began")
            return
        self._workers.count(_COUNTED[event.reason])
        point = self._point
        expect(point is not None, "7 an attempt is handed over at a checkpoint", f"{event} without a point")
        assert point is not None
        whole = [i for i in sorted(attempt.files) if i >= point and attempt.is_whole(i) and i not in attempt.discarded]
        expect(bool(whole), "7 an attempt is handed over at a checkpoint", f"{event} with none from {point} on")
        self._handed = (event.attempt_number, whole[0])
        waiting = [attempt.workers[rank] for rank in attempt.files[whole[0]]]
        passed = [worker.rank for worker in waiting if worker.lives and worker.reports > whole[0] + 1]
        expect(not passed, "7 a planned end loses no report", f"{event}: ranks {passed} went past {whole[0]}")

    def rests(self, state: RunState, waits_for: Callable[[Timer], bool]) -> None:
        """Everything that can be done is done, or a timer is set for it."""
        if state.phase is Phase.ENDED:
            return
        if state.durable.resting:
            asleep = [node for node in state.durable.resting if not waits_for(timers.rest(node))]
            expect(not asleep, "nodes that rest come back", f"{asleep}")
        handover = state.handover
        if handover is not None and handover.reason is not HandoverReason.RESIZE and state.attempt_lives:
            expect(waits_for(timers.HANDOVER), "9 what must end by a deadline ends", f"{handover}")
        wanted = self._world(state.spec)
        settled = state.phase is Phase.RUNNING and handover is None and self._slots is not None
        if settled and wanted is not None and wanted > len(state.ranks):
            returned = any(rank.status is RankStatus.RETURNED for rank in state.ranks)
            resized = returned or waits_for(timers.RESIZE)
            expect(resized, "an attempt that could be larger is resized", f"{wanted} fit")
        if state.phase is Phase.WAITING and wanted is not None and state.verdict is None:
            verifies = state.offer is not None and state.verified != state.offer.id
            goes_on = waits_for(timers.BACKOFF) or verifies or (bool(state.doubted) and waits_for(timers.DOUBT))
            expect(goes_on, "9 a run that has room continues", f"room for {wanted}")
