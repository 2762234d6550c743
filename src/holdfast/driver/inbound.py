"""What agents and the engine say becomes events of the machine. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.handover import place_again
from holdfast.core.run.state import ValidationStatus
from holdfast.store import values
from holdfast.store.report_log import RankReports
from holdfast.wire import messages as wire

from .accounts import evidence_of
from .driver_state import DriverState
from .effects import Accept, ReadLogs, ShowOutput, ShowProgress, WriteStacks
from .late_reports import as_said
from .outbox import Kind
from .recovery import score_of
from .startup import Startup


class Inbound:
    def __init__(self, known: DriverState, startup: Startup, work_off: Callable[[], None]) -> None:
        """``work_off`` steps all that has been heard so far."""
        self._known, self._startup, self._work_off = known, startup, work_off
        self.has_uploaded = False  # since this was last looked at
        self._unheard: set[tuple[int, int]] = set()  # (attempt, rank) of ranks whose node was lost

    def hear(self, node: str, message: wire.Message) -> None:
        known = self._known
        match message:
            case wire.Reports():
                self._hear_reports(node, [message])
            case wire.NodeNews(of):
                self._hear_reports(node, [one for one in of if isinstance(one, wire.Reports)])
                for one in of:
                    if isinstance(one, wire.Sealed):
                        self._hear_sealed(one)
            case wire.Sealed():
                self._hear_sealed(message)
            case wire.WorkerIsArmed(attempt_number, rank):
                known.queue.append(ev.WorkerArmed(attempt_number, rank))
            case wire.StandbyIsReady(attempt_number, number):
                known.queue.append(ev.StandbyReady(attempt_number, number, node))
            case wire.StandbyHasEnded(attempt_number, number, why):
                known.attempts.forget_standby(number)
                known.queue.append(ev.StandbyLost(attempt_number, number, why))
            case wire.WorkerIsReady(attempt_number, rank):
                known.queue.append(ev.WorkerReady(attempt_number, rank))
            case wire.WorkerHasReturned(attempt_number, rank, body):
                known.returned[rank] = body
                if attempt_number == known.run.attempt_number:
                    known.book.returned(rank)
                known.queue.append(ev.WorkerReturned(attempt_number, rank))
            case wire.WorkerHasFailed():
                self._work_off()  # the reports before it tell where it failed
                known.accounts.add(message)
                self._worker_failed(message.attempt_number, message.rank, evidence_of(message))
            case wire.WorkerIsStopped(attempt_number, rank, stopped):
                known.queue.append(ev.WorkerStopped(attempt_number, rank, stopped))
            case wire.WorkersGone(attempt_number):
                if self._may_be_replaced(attempt_number):
                    pass  # its successors are on their way; when the attempt ends, the node says it again
                elif known.attempts.take_gone(node, attempt_number):
                    self._hear_attempt_end(attempt_number)
            case wire.WorkerNoticed():
                known.handover.take_noticed(message, known.run)
                known.queue.extend(filter(None, [known.handover.settle(known.run)]))
            case wire.Stacks():
                self._hear_stacks(message)
            case wire.Probed(ok, findings):
                self._hear_probe(node, ok, findings)
            case wire.DoorOpen() | wire.Met():
                self._hear_of_peers(node, message)
            case wire.SnapshotHeld() | wire.StoreOpen() | wire.Recalled():
                known.queue.extend(known.snapshots.hear(node, message, known.run))
            case wire.Asked():
                self._work_off()  # a request counts on the reports before it
                if message.request.kind == "regroup":
                    known.queue.append(known.regroups.add(message))
                else:
                    known.requests.add(message)
            case wire.TaskDone():
                self._hear_task(message)
            case wire.Output(rank, lines):
                known.effects.append(ShowOutput(rank, lines))
            case wire.Uploaded() | wire.Fetched() | wire.StagedLost():
                self._hear_storage(node, message)
            case wire.PlacesClear(places):
                known.nodes.mark_clear(places)
                self._settle_doubts()
            case wire.NodeJoining() | wire.NodeReady() | wire.NodeSeats() | wire.NodeDraining() | wire.NodeLost():
                self._hear_of_node(message)

    def _may_be_replaced(self, attempt_number: int) -> bool:
        """Whether processes of the attempt may follow those that a node has no more."""
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
            self._hear_rank(reports, staged)
        for (attempt_number, index), ranks in staged.items():
            self._known.shards.seal(node, attempt_number, ranks, index)

    def _hear_rank(self, message: wire.Reports, staged: dict[tuple[int, int], list[int]]) -> None:
        known = self._known
        newest = known.book.add(message)
        attempt_number, rank = message.attempt_number, message.rank
        for report in message.reports:
            if report.staged:
                arguments = values.decode(report.validation) if report.validation else None
                validate = arguments is not None and known.plan.validation is not None
                if validate:
                    known.arguments[attempt_number, report.index] = arguments
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
        """Unless the checkpoint was given up meanwhile, with a node that had another part of it, or an earlier order
        has brought these parts to storage."""
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
        """Its processes are gone with it."""
        known = self._known
        self._work_off()  # what it said before counts
        announced = known.nodes.is_draining(node)
        known.nodes.lost(node)
        known.peers.lost(node)
        for number in known.attempts.lose_standbys(node):
            known.queue.append(ev.StandbyLost(known.run.attempt_number, number, f"{node} was lost"))
        ranks, left_with = known.attempts.node_lost(node), known.outbox.node_lost(node)
        self._startup.node_lost(node)
        attempt_number = known.attempts.attempt_number
        if ranks and known.run.minds_lost_nodes:
            self._worker_failed(attempt_number, ranks[0], Evidence(node_lost=True, preempted=announced, message=node))
        self._tell_of_room()  # before the next attempt is decided
        known.queue.extend(known.snapshots.node_lost(node, known.run))
        self._unheard |= {(attempt_number, rank) for rank in ranks}
        if ranks and known.attempts.take_gone(node, attempt_number):
            self._hear_attempt_end(attempt_number)
        for pending in known.run.unsaved:
            if (pending.attempt_number, pending.index) in left_with and not pending.is_uploaded:
                known.queue.append(ev.StagedLost(pending.id, f"{node} was lost before it was in storage"))

    def _hear_attempt_end(self, attempt_number: int) -> None:
        """What ranks had reported when their agent was killed, and it did not pass on, is in their logs."""
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
            if unheard:
                self._hear_reports(
                    known.attempts.node_of(attempt_number, rank), [wire.Reports(attempt_number, rank, unheard)]
                )
            if logged.returned:
                known.book.returned(rank)
                known.queue.append(ev.WorkerReturned(attempt_number, rank))
        known.queue.append(ev.AttemptGone(attempt_number))

    def _hear_stacks(self, message: wire.Stacks) -> None:
        known = self._known
        if known.stacks.add(message, known.run):
            known.effects.append(WriteStacks(message.attempt_number, known.stacks.text(), known.stacks.summary()))
            known.queue.append(ev.StacksTaken(message.attempt_number, known.stacks.culprit()))

    def _hear_probe(self, node: str, ok: bool, findings: list[str]) -> None:
        known = self._known
        if not ok:
            known.warn(f"{node} is not fit to train on, and is not used: {'; '.join(findings)}")
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
        self._work_off()  # what was reported before counts
        again = place_again(known.run, known.attempts.is_well_placed(known.run.attempt_number))
        known.queue.extend(filter(None, [again]))
