"""What must be true while lost ranks are replaced alone, judged by what workers really do: live, wait, complete
steps."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.failures import FailureKind, classify
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Phase, RankStatus, RunState
from holdfast.core.run.timers import Timer

from .fates import expect
from .simulated_workers import Workers

_WHEN = "11 a rank is replaced alone when its peers can wait for it, and only then"
_SOURCE = "11 ranks continue with the newest state of a survivor"
_ENDS = "11 ranks wait for a replacement until a deadline"
_STANDBYS = "11 there are as many standbys as were asked for"
_MOVES = "11 a rank moves when its files need no node that goes"
_ONCE = "11 a report counts once"
_KINDS = (FailureKind.CRASH, FailureKind.OUT_OF_MEMORY, FailureKind.HANG, FailureKind.START_UP)
_MOST_IN_A_ROW = 3
_JUDGED = {do.RegroupRanks, do.ReplaceRank, do.StartStandby}


class LiveJudge:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._taken: set[tuple[int, int]] = set()  # standbys that took a rank, by attempt and number

    def stepped(self, before: RunState, event: ev.Event, after: RunState, commands: list[do.Command]) -> None:
        if isinstance(event, ev.WorkerFailed):
            self._judge_failure(before, event)
        elif isinstance(event, (ev.Progressed, ev.ShardStaged)):
            self._judge_report(before, event)
        elif isinstance(event, ev.RegroupFailed):
            self._workers.count("ranks could not be replaced alone")
        elif isinstance(event, ev.RankMoved):
            self._workers.count("a rank moved to another node")
            pending = before.attempt.pending if before.attempt is not None else {}
            expect(not pending, _MOVES, f"{event} while {pending} is on its way")
        for command in commands:
            if type(command) not in _JUDGED:
                continue
            if isinstance(command, do.RegroupRanks):
                self._judge_answer(command)
            elif isinstance(command, do.ReplaceRank):
                self._judge_replacement(command)
            elif isinstance(command, do.StartStandby):
                self._judge_standby(command, after)

    def _judge_report(self, before: RunState, event: ev.Progressed | ev.ShardStaged) -> None:
        if before.attempt is not None and event.attempt_number == before.attempt_number:
            made = event.reports if isinstance(event, ev.Progressed) else event.index + 1
            expect(made > before.ranks[event.rank].reports, _ONCE, f"{event} comes again")

    def _judge_failure(self, before: RunState, event: ev.WorkerFailed) -> None:
        attempt, evidence = before.attempt, event.evidence
        if attempt is None or event.attempt_number != before.attempt_number:
            expect(not event.live, _WHEN, f"{event} of an attempt that is gone")
            return
        lost = attempt.regroup.lost if attempt.regroup is not None else frozenset()
        others = [known for rank, known in enumerate(attempt.ranks) if rank != event.rank and rank not in lost]
        can_wait = bool(others) and all(known.armed and known.status is not RankStatus.RETURNED for known in others)
        returned = any(known.status is RankStatus.RETURNED for known in attempt.ranks)
        goes_on = before.phase is Phase.RUNNING and before.verdict is None and attempt.handover is None
        of_a_process = classify(evidence) in _KINDS and not evidence.exception and not evidence.node_lost
        often = before.durable.streak >= _MOST_IN_A_ROW or before.spec.regroup_timeout_s <= 0
        expected = can_wait and goes_on and of_a_process and not often and not returned
        expect(event.live == expected, _WHEN, f"{event} with {attempt.ranks}")

    def _judge_answer(self, command: do.RegroupRanks) -> None:
        attempt = self._workers.attempts[command.attempt_number]
        waiting = [worker for worker in attempt.workers if worker.lives]
        outside = [worker.rank for worker in waiting if not worker.meets]
        expect(not outside, _SOURCE, f"{command}: ranks {outside} do not wait")
        joining = {worker.rank for worker in waiting if worker.joins}
        expect(joining <= set(command.replaced), _SOURCE, f"{command}: {joining} have no state")
        done = {w.rank: attempt.base + w.done for w in attempt.workers if w.rank not in command.replaced}
        newest = bool(done) and done.get(command.source) == max(done.values())
        expect(newest, _SOURCE, f"{command} where {done} are completed")

    def _judge_replacement(self, command: do.ReplaceRank) -> None:
        if command.standby:
            self._workers.count("a standby took a rank")
            which = (command.attempt_number, command.standby)
            expect(which not in self._taken, "11 a rank has one owner", f"{command}, which has a rank already")
            self._taken.add(which)

    def _judge_standby(self, command: do.StartStandby, after: RunState) -> None:
        attempt = after.attempt
        if command.moves or attempt is None:
            return
        ready = all(known.armed for known in attempt.ranks)
        expect(ready, _STANDBYS, f"{command} where not all ranks can wait for one")
        free = [number for number, one in attempt.standbys.items() if one.rank < 0 and one.moves < 0]
        expect(len(free) <= after.spec.standby_workers, _STANDBYS, f"{command} beside {free}")

    def rests(self, state: RunState, waits_for: Callable[[Timer], bool]) -> None:
        if state.attempt is not None and state.attempt.regroup is not None and state.attempt_lives:
            expect(waits_for(timers.REGROUP), _ENDS, f"{state.attempt}")
