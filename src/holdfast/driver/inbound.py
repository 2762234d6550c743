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
        self._unheard: set[tuple[int, int]] = set()  # (generation, rank) of ranks whose node was lost

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
            case wire.WorkerIsArmed(generation, rank):
                known.queue.append(ev.WorkerArmed(generation, rank))
            case wire.WorkerIsReady(generation, rank):
                known.queue.append(ev.WorkerReady(generation, rank))
            case wire.WorkerHasReturned(generation, rank, body):
                known.returned[rank] = body
                if generation == known.run.generation:
                    known.book.returned(rank)
                known.queue.append(ev.WorkerReturned(generation, rank))
            case wire.WorkerHasFailed():
                self._work_off()  # the reports before it tell where it failed
                known.accounts.add(message)
                self._worker_failed(message.generation, message.rank, evidence_of(message))
            case wire.WorkerIsStopped(generation, rank, stopped):
                known.queue.append(ev.WorkerStopped(generation, rank, stopped))
            case wire.WorkersGone(generation):
                if self._may_be_replaced(generation):
                    pass  # its successors are on their way; when the group ends, the node says it again
                elif known.attempts.take_gone(node, generation):
                    self._hear_attempt_end(generation)
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

    def _may_be_replaced(self, generation: int) -> bool:
        """Whether processes of the group may follow those that a node has no more."""
        run = self._known.run
        return generation == run.generation and run.attempt_lives and any(rank.armed for rank in run.ranks)

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
                known.warn(f"{node} will be taken away in {deadline_s:.0f} s")
                ranks = tuple(known.attempts.ranks_on(known.run.generation, [node])[node])
                known.queue.append(ev.NodeDrains(node, deadline_s, ranks))
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
        for (generation, index), ranks in staged.items():
            self._known.shards.seal(node, generation, ranks, index)

    def _hear_rank(self, message: wire.Reports, staged: dict[tuple[int, int], list[int]]) -> None:
        known = self._known
        newest = known.book.add(message)
        generation, rank = message.generation, message.rank
        for report in message.reports:
            if report.staged:
                arguments = values.decode(report.validation) if report.validation else None
                validate = arguments is not None and known.plan.validation is not None
                if validate:
                    known.arguments[generation, report.index] = arguments
                where = (generation, rank, report.index)
                known.queue.append(ev.ShardStaged(*where, report.name, validate, report.urgent))
                if report.elsewhere:
                    self._hear_sealed(wire.Sealed(*where, report.elsewhere))
                else:
                    staged.setdefault((generation, report.index), []).append(rank)
        last = message.reports[-1]
        if not last.staged:
            known.queue.append(ev.Progressed(generation, rank, last.index + 1))
        if newest is not None and generation == known.run.generation:
            known.effects.append(ShowProgress(known.run.base + last.index + 1, newest))

    def _hear_sealed(self, message: wire.Sealed) -> None:
        known = self._known
        known.shards.take_sealed(message)
        if self._startup.sealed(message):
            return
        where = (message.generation, message.rank, message.index)
        known.queue.append(ev.ShardFailed(*where, message.error) if message.error else ev.ShardSealed(*where))

    def _hear_storage(self, node: str, message: wire.Uploaded | wire.Fetched | wire.StagedLost) -> None:
        known = self._known
        match message:
            case wire.StagedLost(id, why):
                if not self._startup.staged_lost(node, id, why):
                    known.queue.append(ev.StagedLost(id, why))
            case wire.Uploaded(generation, index, ranks, error):
                known.shards.take_uploaded(node, message)
                if self._startup.uploaded(node, generation, index, error):
                    pass
                elif error:
                    # Else it was given up meanwhile, with a node that had another part of it.
                    if any((p.generation, p.index) == (generation, index) for p in known.run.unsaved):
                        known.queue.append(ev.UploadFailed(generation, index, error))
                else:
                    known.queue.extend(ev.ShardUploaded(generation, rank, index) for rank in ranks)
                    self.has_uploaded = True
            case wire.Fetched():
                known.queue.extend(filter(None, [known.verification.take_fetched(node, message)]))

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

    def _worker_failed(self, generation: int, rank: int, evidence: Evidence) -> None:
        known = self._known
        node = known.attempts.node_of(generation, rank)
        ranks = known.run.ranks if generation == known.run.generation else ()
        at = known.run.base + ranks[rank].reports if rank < len(ranks) else -1
        known.queue.append(ev.WorkerFailed(generation, rank, evidence, node, at))

    def _node_lost(self, node: str) -> None:
        """Its processes are gone with it."""
        known = self._known
        self._work_off()  # what it said before counts
        announced = known.nodes.is_draining(node)
        known.nodes.lost(node)
        known.peers.lost(node)
        ranks, left_with = known.attempts.node_lost(node), known.outbox.node_lost(node)
        self._startup.node_lost(node)
        generation = known.attempts.generation
        if ranks and known.run.minds_lost_nodes:
            self._worker_failed(generation, ranks[0], Evidence(node_lost=True, preempted=announced, message=node))
        self._tell_of_room()  # before the next group is decided
        known.queue.extend(known.snapshots.node_lost(node, known.run))
        self._unheard |= {(generation, rank) for rank in ranks}
        if ranks and known.attempts.take_gone(node, generation):
            self._hear_attempt_end(generation)
        for pending in known.run.unsaved:
            if (pending.generation, pending.index) in left_with and not pending.is_uploaded:
                known.queue.append(ev.StagedLost(pending.id, f"{node} was lost before it was in storage"))

    def _hear_attempt_end(self, generation: int) -> None:
        """What ranks had reported when their agent was killed, and it did not pass on, is in their logs."""
        known = self._known
        ranks, self._unheard = sorted(rank for of, rank in self._unheard if of == generation), set()
        logs = {rank: log for rank in ranks if (log := known.attempts.report_log(generation, rank)) is not None}
        if logs:
            known.attempts.is_being_read = True
            known.effects.append(ReadLogs(generation, logs))
        else:
            self.take_logs(generation, {})

    def take_logs(self, generation: int, logs: Mapping[int, RankReports]) -> None:
        known = self._known
        known.attempts.is_being_read = False
        for rank, logged in logs.items():
            first = known.book.count(generation, rank)
            unheard = [report for report in as_said(logged) if report.index >= first]
            if unheard:
                self._hear_reports(known.attempts.node_of(generation, rank), [wire.Reports(generation, rank, unheard)])
            if logged.returned:
                known.book.returned(rank)
                known.queue.append(ev.WorkerReturned(generation, rank))
        known.queue.append(ev.AttemptGone(generation))

    def _hear_stacks(self, message: wire.Stacks) -> None:
        known = self._known
        if known.stacks.add(message, known.run):
            known.effects.append(WriteStacks(message.generation, known.stacks.text(), known.stacks.summary()))
            known.queue.append(ev.StacksTaken(message.generation, known.stacks.culprit()))

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
        again = place_again(known.run, known.attempts.is_well_placed(known.run.generation))
        known.queue.extend(filter(None, [again]))
