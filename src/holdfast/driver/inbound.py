"""Turns messages of agents and the engine into events of the core. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.handover import place_again
from holdfast.core.run.regrouping import is_of_its_rank, may_report
from holdfast.core.run.state import ValidationStatus
from holdfast.store import values
from holdfast.store.report_log import RankReports
from holdfast.wire import messages as wire

from .accounts import evidence_of
from .committed_events import score_of
from .driver_state import DriverState
from .effects import Accept, ReadLogs, ShowOutput, ShowProgress, WriteStacks
from .logged_reports import as_said
from .outbox import Kind
from .startup import Startup


class Inbound:
    def __init__(self, known: DriverState, startup: Startup, work_off: Callable[[], None]) -> None:
        """``work_off`` steps all events that have been queued so far."""
        self._known, self._startup, self._work_off = known, startup, work_off
        self.has_uploaded = False  # since this was last looked at
        self._unheard: set[tuple[int, int]] = set()  # (attempt, rank) of ranks whose node was lost

    def hear(self, node: str, message: wire.Message) -> None:
        hear = _HEAR.get(type(message))
        if hear is not None:
            hear(self, node, message)

    def _hear_news(self, node: str, message: wire.NodeNews) -> None:
        self._hear_reports(node, [one for one in message.of if isinstance(one, wire.Reports)])
        for one in message.of:
            if isinstance(one, wire.Sealed):
                self._hear_sealed(one)

    def _hear_standby(self, node: str, message: wire.StandbyIsReady | wire.StandbyHasEnded) -> None:
        known, where = self._known, (message.attempt_number, message.number)
        if isinstance(message, wire.StandbyIsReady):
            known.queue.append(ev.StandbyReady(*where, node))
        else:
            known.attempts.forget_standby(message.number)
            known.queue.append(ev.StandbyLost(*where, message.why))

    def _is_of_its_rank(self, message: wire.WorkerHasFailed | wire.WorkerNoticed | wire.Asked) -> bool:
        """Whether the process still has the rank. If the rank was given to another process, its messages do not
        count."""
        self._work_off()  # what was heard before may have decided that, and shows where a process failed
        return is_of_its_rank(self._known.run, message.attempt_number, message.rank, message.process)

    def _hear_returned(self, message: wire.WorkerHasReturned) -> None:
        """Whether it counts is known when it is stepped: of a large attempt, many come together."""
        if message.rank == 0:
            self._known.values[message.attempt_number, message.process] = message.body
        self._known.queue.append(ev.WorkerReturned(message.attempt_number, message.rank, message.process))

    def _hear_failed(self, message: wire.WorkerHasFailed) -> None:
        if not self._is_of_its_rank(message):  # and the reports before it show where it failed
            return
        self._known.accounts.add(message)
        self._worker_failed(message.attempt_number, message.rank, evidence_of(message))

    def _hear_gone(self, node: str, message: wire.WorkersGone) -> None:
        """Not counted while replacements of the node's workers are being started: when the attempt ends, the node says
        this again."""
        number = message.attempt_number
        if not self._may_be_replaced(number) and self._known.attempts.take_gone(node, number, message.orders):
            self._hear_attempt_end(number)

    def _hear_noticed(self, message: wire.WorkerNoticed) -> None:
        known = self._known
        if self._is_of_its_rank(message):
            known.handover.take_noticed(message, known.run)
        known.queue.extend(filter(None, [known.handover.settle(known.run)]))

    def _hear_asked(self, message: wire.Asked) -> None:
        if not self._is_of_its_rank(message):  # and it counts on the reports before it
            return
        if message.request.kind == "regroup":
            self._known.queue.extend(self._known.regroups.add(message))
        else:
            self._known.requests.add(message)

    def _hear_snapshots(self, node: str, message: wire.SnapshotHeld | wire.StoreOpen | wire.Recalled) -> None:
        known = self._known
        known.queue.extend(known.snapshots.hear(node, message, known.run))

    def _hear_clear(self, message: wire.PlacesClear) -> None:
        self._known.nodes.mark_clear(message.places)
        self._settle_doubts()

    def _may_be_replaced(self, attempt_number: int) -> bool:
        """Whether the attempt may start processes on a node that has none left."""
        run = self._known.run
        return attempt_number == run.attempt_number and run.attempt_lives and any(rank.armed for rank in run.ranks)

    def _hear_of_node(
        self, message: wire.NodeJoining | wire.NodeReady | wire.NodeSeats | wire.NodeDraining | wire.NodeLost
    ) -> None:
        known = self._known
        nodes, node = known.nodes, message.node_id
        match message:
            case wire.NodeJoining():
                nodes.joining(node)
            case wire.NodeReady():
                self._node_ready(message)
                self._settle_doubts()
                self._startup.take_over(message)
            case wire.NodeSeats(_, seats):
                nodes.seat(node, seats)
            case wire.NodeDraining(_, deadline_s):
                nodes.drain(node)
                known.warn(f"{node} will be preempted in {deadline_s:.0f} s")
                ranks = tuple(known.attempts.ranks_on(known.run.attempt_number, [node])[node])
                known.queue.append(ev.NodeDrains(node, deadline_s, ranks, known.attempts.free_elsewhere()))
            case wire.NodeLost():
                self._node_lost(node)
                return
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        if not self._startup.is_over:
            self._startup.heard_of_a_node()
        else:
            self._known.tell_of_room()

    def _node_ready(self, message: wire.NodeReady) -> None:
        known, node = self._known, message.node_id
        known.effects.append(Accept(node, message.pid))
        known.nodes.ready(message)
        if known.site.grows:
            known.peers.joined(node)
        known.outbox.node_ready(node)
        known.snapshots.node_ready(node, known.run)
        known.attempts.node_ready()
        if known.site.grows:
            known.outbox.send(node, wire.Probe())

    def _settle_doubts(self) -> None:
        known = self._known
        known.queue.extend(map(ev.NodeClear, known.nodes.clear_among(sorted(known.run.doubted))))

    def _hear_reports(self, node: str, of_ranks: Sequence[wire.Reports]) -> None:
        staged: dict[tuple[int, int], list[int]] = {}  # by report, the ranks whose files are to be sealed
        for reports in of_ranks:
            if self._are_counted(reports):
                self._hear_rank(reports, staged)
        for (attempt_number, index), ranks in staged.items():
            self._known.shards.seal(node, attempt_number, ranks, index)

    def _are_counted(self, reports: wire.Reports) -> bool:
        attempt = self._known.run.attempt
        if attempt is not None and attempt.regroup is not None:
            self._work_off()  # what was heard before may have decided that they are not
        return may_report(self._known.run, reports.attempt_number, reports.rank, reports.process)

    def _hear_rank(self, message: wire.Reports, staged: dict[tuple[int, int], list[int]]) -> None:
        known = self._known
        newest = known.book.add(message)
        attempt_number, rank = message.attempt_number, message.rank
        for report in message.reports:
            if report.staged:
                arguments = values.decode(report.validation) if report.validation else None
                validate = arguments is not None and known.plan.validation is not None
                if validate:
                    known.shards.keep_arguments(attempt_number, report.index, arguments)
                where = (attempt_number, rank, report.index)
                known.queue.append(ev.ShardStaged(*where, report.name, validate, report.urgent))
                if report.elsewhere:
                    self._hear_sealed(wire.Sealed(*where, report.elsewhere))
                else:
                    staged.setdefault((attempt_number, report.index), []).append(rank)
        last = message.reports[-1]
        if not last.staged:
            known.queue.append(ev.Progressed(attempt_number, rank, last.index + 1))
        if newest is not None and attempt_number == known.run.attempt_number:
            known.effects.append(ShowProgress(known.run.base + last.index + 1, newest))

    def _hear_sealed(self, message: wire.Sealed) -> None:
        known = self._known
        known.shards.take_sealed(message)
        if self._startup.sealed(message):
            return
        where = (message.attempt_number, message.rank, message.index)
        known.queue.append(ev.ShardFailed(*where, message.error) if message.error else ev.ShardSealed(*where))

    def _hear_storage(self, node: str, message: wire.Uploaded | wire.Fetched | wire.StagedLost) -> None:
        known = self._known
        match message:
            case wire.StagedLost(id, why):
                if not self._startup.staged_lost(node, id, why):
                    known.queue.append(ev.StagedLost(id, why))
            case wire.Uploaded(attempt_number, index, ranks, error):
                known.shards.take_uploaded(node, message)
                if self._startup.uploaded(node, attempt_number, index, error):
                    pass
                elif error:
                    self._upload_failed(message)
                else:
                    known.queue.extend(ev.ShardUploaded(attempt_number, rank, index) for rank in ranks)
                    self.has_uploaded = True
            case wire.Fetched():
                known.queue.extend(filter(None, [known.verification.take_fetched(node, message)]))

    def _upload_failed(self, message: wire.Uploaded) -> None:
        """Not counted if the checkpoint was given up meanwhile, because a node with another part was lost, or if an
        earlier order has uploaded these parts."""
        for pending in self._known.run.unsaved:
            refused = tuple(rank for rank in message.ranks if rank not in pending.uploaded)
            if refused and (pending.attempt_number, pending.index) == (message.attempt_number, message.index):
                self._known.queue.append(ev.UploadFailed(message.attempt_number, message.index, message.error, refused))

    def _hear_task(self, message: wire.TaskDone) -> None:
        known = self._known
        if not known.outbox.finish(Kind.TASK, message.task):
            return
        metrics: Any = None
        error = message.error
        if not error:
            metrics = cloudpickle.loads(message.body)
            if not isinstance(metrics, dict):
                error = f"the validation function returned {type(metrics).__name__}, not a dict of metrics"
        if message.crashed and known.validations.retry(message.task):
            known.warn(f"validation of {message.task} crashed and is retried: {error}")
            return
        if error:
            status = ValidationStatus.TIMEOUT if message.timed_out else ValidationStatus.FAILED
            known.warn(f"validation of {message.task} {'timed out' if message.timed_out else f'failed: {error}'}")
            known.queue.append(ev.Validated(message.task, status))
            return
        known.past.validated[message.task] = metrics
        score = score_of(metrics, known.plan.score_attribute)
        known.queue.append(ev.Validated(message.task, ValidationStatus.DONE, score, metrics))

    def _worker_failed(self, attempt_number: int, rank: int, evidence: Evidence) -> None:
        known = self._known
        node = known.attempts.node_of(attempt_number, rank)
        ranks = known.run.ranks if attempt_number == known.run.attempt_number else ()
        at = known.run.base + ranks[rank].reports if rank < len(ranks) else -1
        known.queue.append(ev.WorkerFailed(attempt_number, rank, evidence, node, at))

    def _node_lost(self, node: str) -> None:
        """The agent is lost, and its processes have exited with it."""
        known = self._known
        self._work_off()  # its earlier messages count
        announced = known.nodes.is_draining(node)
        known.nodes.lost(node)
        known.peers.lost(node)
        for number in known.attempts.lose_standbys(node):
            known.queue.append(ev.StandbyLost(known.run.attempt_number, number, f"{node} was lost"))
        had_processes = known.attempts.may_have_processes(node)  # maybe none but a standby
        ranks, left_with = known.attempts.node_lost(node), known.outbox.node_lost(node)
        self._startup.node_lost(node)
        attempt_number = known.attempts.attempt_number
        if ranks and known.run.minds_lost_nodes:
            self._worker_failed(attempt_number, ranks[0], Evidence(node_lost=True, preempted=announced, message=node))
        self._tell_of_room()  # before the next attempt is decided
        known.queue.extend(known.snapshots.node_lost(node, known.run))
        self._unheard |= {(attempt_number, rank) for rank in {*ranks, *known.attempts.ranks_that_left(node)}}
        if (ranks or had_processes) and known.attempts.take_gone(node, attempt_number):
            self._hear_attempt_end(attempt_number)
        for pending in known.run.unsaved:
            if (pending.attempt_number, pending.index) in left_with and not pending.is_uploaded:
                known.queue.append(ev.StagedLost(pending.id, f"{node} was lost before it was in storage"))

    def _hear_attempt_end(self, attempt_number: int) -> None:
        """Reports that a killed agent did not pass on are in the logs of its ranks."""
        known = self._known
        ranks, self._unheard = sorted(rank for of, rank in self._unheard if of == attempt_number), set()
        logs = {rank: log for rank in ranks if (log := known.attempts.report_log(attempt_number, rank)) is not None}
        if logs:
            known.attempts.is_being_read = True
            known.effects.append(ReadLogs(attempt_number, logs))
        else:
            self.take_logs(attempt_number, {})

    def take_logs(self, attempt_number: int, logs: Mapping[int, RankReports]) -> None:
        known = self._known
        known.attempts.is_being_read = False
        for rank, logged in logs.items():
            first = known.book.count(attempt_number, rank)
            unheard = [report for report in as_said(logged) if report.index >= first]
            process = known.run.ranks[rank].process if rank < len(known.run.ranks) else 0
            if unheard:
                reports = wire.Reports(attempt_number, rank, unheard, process)
                self._hear_reports(known.attempts.node_of(attempt_number, rank), [reports])
            if logged.returned:
                known.book.returned(rank)
                known.queue.append(ev.WorkerReturned(attempt_number, rank, process))
        known.queue.append(ev.AttemptGone(attempt_number))

    def _hear_stacks(self, message: wire.Stacks) -> None:
        known = self._known
        if known.stacks.add(message, known.run):
            known.effects.append(WriteStacks(message.attempt_number, known.stacks.text(), known.stacks.summary()))
            known.queue.append(ev.StacksTaken(message.attempt_number, known.stacks.culprit()))

    def _hear_probe(self, node: str, ok: bool, findings: list[str]) -> None:
        known = self._known
        if not ok:
            known.warn(f"{node} failed its check and is not used: {'; '.join(findings)}")
            known.nodes.mark_unfit(node)
            self._place_again()

    def _hear_of_peers(self, node: str, message: wire.DoorOpen | wire.Met) -> None:
        known = self._known
        finding = known.peers.hear(node, message)
        if finding is not None:
            known.warn(finding)
            self._place_again()

    def _place_again(self) -> None:
        known = self._known
        known.queue.append(ev.Capacity(known.slots()))
        self._work_off()  # earlier reports count
        again = place_again(known.run, known.attempts.is_well_placed(known.run.attempt_number))
        known.queue.extend(filter(None, [again]))


def _queued(event: Callable[[Any], ev.Event]) -> Callable[[Inbound, str, Any], None]:
    return lambda inbound, _node, message: inbound._known.queue.append(event(message))


_HEAR: dict[type[wire.Message], Callable[[Inbound, str, Any], None]] = {
    wire.Reports: lambda inbound, node, message: inbound._hear_reports(node, [message]),
    wire.NodeNews: Inbound._hear_news,
    wire.Sealed: lambda inbound, _, message: inbound._hear_sealed(message),
    wire.WorkerIsArmed: _queued(lambda said: ev.WorkerArmed(said.attempt_number, said.rank, said.process)),
    wire.StandbyIsReady: Inbound._hear_standby,
    wire.StandbyHasEnded: Inbound._hear_standby,
    wire.WorkerIsReady: _queued(lambda said: ev.WorkerReady(said.attempt_number, said.rank, said.process)),
    wire.WorkerHasReturned: lambda inbound, _, message: inbound._hear_returned(message),
    wire.WorkerHasFailed: lambda inbound, _, message: inbound._hear_failed(message),
    wire.WorkerIsStopped: _queued(
        lambda said: ev.WorkerStopped(said.attempt_number, said.rank, said.stopped, said.process)
    ),
    wire.WorkersGone: Inbound._hear_gone,
    wire.WorkerNoticed: lambda inbound, _, message: inbound._hear_noticed(message),
    wire.Stacks: lambda inbound, _, message: inbound._hear_stacks(message),
    wire.Probed: lambda inbound, node, message: inbound._hear_probe(node, message.ok, message.findings),
    **dict.fromkeys((wire.DoorOpen, wire.Met), Inbound._hear_of_peers),
    **dict.fromkeys((wire.SnapshotHeld, wire.StoreOpen, wire.Recalled), Inbound._hear_snapshots),
    wire.Asked: lambda inbound, _, message: inbound._hear_asked(message),
    wire.TaskDone: lambda inbound, _, message: inbound._hear_task(message),
    wire.Output: lambda inbound, _, said: inbound._known.effects.append(ShowOutput(said.rank, said.lines)),
    **dict.fromkeys((wire.Uploaded, wire.Fetched, wire.StagedLost), Inbound._hear_storage),
    wire.PlacesClear: lambda inbound, _, message: inbound._hear_clear(message),
    **dict.fromkeys(
        (wire.NodeJoining, wire.NodeReady, wire.NodeSeats, wire.NodeDraining, wire.NodeLost),
        lambda inbound, _, message: inbound._hear_of_node(message),
    ),
}
