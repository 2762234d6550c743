"""The ears of a driver: what agents and the engine say becomes events of the machine. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, ValidationStatus
from holdfast.store import report_log, values
from holdfast.wire import messages as wire

from .accounts import evidence_of
from .beginning import Beginning
from .desk import Desk
from .late_reports import as_said
from .recovery import score_of
from .reports import metrics_in

_WRITERS_END_WITHIN_S = 1.0


class Ears:
    def __init__(self, desk: Desk, beginning: Beginning, work_off: Callable[[], None]) -> None:
        """``work_off`` steps all that has been heard so far."""
        self._desk, self._beginning, self._work_off = desk, beginning, work_off
        self._unheard: set[tuple[int, int]] = set()  # (generation, rank) of ranks whose node was lost

    def hear(self, node: str, message: wire.Message) -> None:
        desk = self._desk
        match message:
            case wire.Reports():
                self._hear_reports(node, message)
            case wire.Sealed():
                self._hear_sealed(message)
            case wire.WorkerIsReady(generation, rank):
                desk.queue.append(ev.WorkerReady(generation, rank))
            case wire.WorkerHasReturned(generation, rank, body):
                desk.returned[rank] = body
                if generation == desk.state.generation:
                    desk.book.returned(rank)
                desk.queue.append(ev.WorkerReturned(generation, rank))
            case wire.WorkerHasFailed():
                self._work_off()  # the reports before it tell where it failed
                desk.accounts.add(message)
                self._worker_failed(message.generation, message.rank, evidence_of(message))
            case wire.WorkerIsStopped(generation, rank, stopped):
                desk.queue.append(ev.WorkerStopped(generation, rank, stopped))
            case wire.WorkersGone(generation):
                if desk.fleet.is_gone(node, generation):
                    self._hear_group_end(generation)
            case wire.WorkerNoticed():
                desk.handing_over.noticed(message, desk.state)
                desk.queue.extend(filter(None, [desk.handing_over.settle(desk.state)]))
            case wire.Stacks():
                self._hear_stacks(message)
            case wire.Probed(ok, findings):
                self._hear_probe(node, ok, findings)
            case wire.DoorOpen() | wire.Met():
                self._hear_of_peers(node, message)
            case wire.Asked():
                self._work_off()  # a request counts on the reports before it
                desk.requests.add(message)
            case wire.TaskDone():
                self._hear_task(message)
            case wire.Output(rank, lines):
                for line in lines:
                    desk.display.output(rank, line)
            case wire.Uploaded() | wire.Fetched() | wire.StagedLost():
                self._hear_storage(node, message)
            case wire.PlacesClear(places):
                desk.fleet.roster.are_clear(places)
                self._settle_doubts()
            case wire.NodeJoining() | wire.NodeReady() | wire.NodeSeats() | wire.NodeDraining() | wire.NodeLost():
                self._hear_of_node(message)

    def _hear_of_node(
        self, message: wire.NodeJoining | wire.NodeReady | wire.NodeSeats | wire.NodeDraining | wire.NodeLost
    ) -> None:
        desk = self._desk
        fleet, node = desk.fleet, message.node_id
        match message:
            case wire.NodeJoining():
                fleet.roster.joining(node)
            case wire.NodeReady():
                fleet.ready(message)
                if fleet.grows:
                    fleet.probe(node)
                self._settle_doubts()
                self._beginning.take_over(message)
            case wire.NodeSeats(_, seats):
                fleet.roster.seat(node, seats)
            case wire.NodeDraining(_, deadline_s):
                fleet.roster.drain(node)
                desk.warn(f"{node} will be taken away in {deadline_s:.0f} s")
                ranks = tuple(fleet.ranks_on(desk.state.generation, [node])[node])
                desk.queue.append(ev.NodeDrains(node, deadline_s, ranks))
            case wire.NodeLost():
                self._node_lost(node)
                return
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        desk = self._desk
        if not self._beginning.is_over:
            self._beginning.heard_of_a_node()
        elif desk.fleet.grows:
            desk.queue.append(ev.Capacity(desk.fleet.slots()))

    def _settle_doubts(self) -> None:
        desk = self._desk
        desk.queue.extend(map(ev.NodeClear, desk.fleet.roster.clear_among(sorted(desk.state.doubted))))

    def _hear_reports(self, node: str, message: wire.Reports) -> None:
        desk = self._desk
        newest = desk.book.add(message)
        generation, rank = message.generation, message.rank
        for report in message.reports:
            if report.staged:
                arguments = values.decode(report.validation) if report.validation else None
                validate = arguments is not None and desk.plan.validation is not None
                if validate:
                    desk.arguments[generation, report.index] = arguments
                where = (generation, rank, report.index)
                desk.queue.append(ev.ShardStaged(*where, report.name, validate, report.urgent))
                if report.elsewhere:
                    self._hear_sealed(wire.Sealed(*where, report.elsewhere))
                else:
                    desk.fleet.seal(node, *where)
        last = message.reports[-1]
        if not last.staged:
            desk.queue.append(ev.Progressed(generation, rank, last.index + 1))
        if newest is not None and generation == desk.state.generation:
            desk.display.progress(desk.state.base + last.index + 1, metrics_in(newest))

    def _hear_sealed(self, message: wire.Sealed) -> None:
        desk = self._desk
        desk.fleet.sealed(message)
        if self._beginning.sealed(message):
            return
        where = (message.generation, message.rank, message.index)
        desk.queue.append(ev.ShardFailed(*where, message.error) if message.error else ev.ShardSealed(*where))

    def _hear_storage(self, node: str, message: wire.Uploaded | wire.Fetched | wire.StagedLost) -> None:
        desk = self._desk
        match message:
            case wire.StagedLost(id, why):
                if not self._beginning.staged_lost(node, id, why):
                    desk.queue.append(ev.StagedLost(id, why))
            case wire.Uploaded(generation, index, ranks, error):
                desk.fleet.uploaded(node, message)
                if self._beginning.uploaded(node, generation, index, error):
                    pass
                elif error:
                    # Else it was given up meanwhile, with a node that had another part of it.
                    if any((p.generation, p.index) == (generation, index) for p in desk.state.unsaved):
                        desk.queue.append(ev.UploadFailed(generation, index, error))
                else:
                    desk.queue.extend(ev.ShardUploaded(generation, rank, index) for rank in ranks)
                    desk.inbox.put(lambda: desk.verification.go_on(desk.state))
            case wire.Fetched():
                desk.queue.extend(filter(None, [desk.verification.fetched(node, message)]))

    def _hear_task(self, message: wire.TaskDone) -> None:
        desk = self._desk
        if not desk.fleet.task_done(message.task):
            return
        metrics: Any = None
        error = message.error
        if not error:
            metrics = cloudpickle.loads(message.body)
            if not isinstance(metrics, dict):
                error = f"the validation function returned {type(metrics).__name__}, not a dict of metrics"
        if error:
            status = ValidationStatus.TIMEOUT if message.timed_out else ValidationStatus.FAILED
            desk.warn(f"validation of {message.task} {'timed out' if message.timed_out else f'failed: {error}'}")
            desk.queue.append(ev.Validated(message.task, status))
            return
        desk.past.validated[message.task] = metrics
        score = score_of(metrics, desk.plan.score_attribute)
        desk.queue.append(ev.Validated(message.task, ValidationStatus.DONE, score, metrics))

    def _worker_failed(self, generation: int, rank: int, evidence: Evidence) -> None:
        desk = self._desk
        node = desk.fleet.node_of(generation, rank)
        ranks = desk.state.ranks if generation == desk.state.generation else ()
        at = desk.state.base + ranks[rank].reports if rank < len(ranks) else -1
        desk.queue.append(ev.WorkerFailed(generation, rank, evidence, node, at))

    def _node_lost(self, node: str) -> None:
        """Its processes are gone with it."""
        desk = self._desk
        self._work_off()  # what it said before counts
        announced = desk.fleet.roster.is_draining(node)
        ranks, left_with = desk.fleet.lost(node)
        self._beginning.node_lost(node)
        generation = desk.fleet.generation
        if ranks and desk.state.minds_lost_nodes:
            self._worker_failed(generation, ranks[0], Evidence(node_lost=True, preempted=announced, message=node))
        self._tell_of_room()  # before the next group is decided
        self._unheard |= {(generation, rank) for rank in ranks}
        if ranks and desk.fleet.is_gone(node, generation):
            self._hear_group_end(generation)
        for pending in desk.state.unsaved:
            if (pending.generation, pending.index) in left_with and not pending.is_uploaded:
                desk.queue.append(ev.StagedLost(pending.id, f"{node} was lost before it was in storage"))

    def _hear_group_end(self, generation: int) -> None:
        """What ranks had reported when their agent was killed, and it did not pass on, is in their logs."""
        desk = self._desk
        ranks, self._unheard = sorted(rank for of, rank in self._unheard if of == generation), set()
        logs = {rank: log for rank in ranks if (log := desk.fleet.report_log(generation, rank)) is not None}
        report_log.await_writers(logs.values(), _WRITERS_END_WITHIN_S)
        for rank, path in logs.items():
            logged = report_log.parse(report_log.read(path, any_boot=True))
            first = desk.book.count(generation, rank)
            unheard = [report for report in as_said(logged) if report.index >= first]
            if unheard:
                self._hear_reports(desk.fleet.node_of(generation, rank), wire.Reports(generation, rank, unheard))
            if logged.returned:
                desk.book.returned(rank)
                desk.queue.append(ev.WorkerReturned(generation, rank))
        desk.queue.append(ev.GroupGone(generation))

    def _hear_stacks(self, message: wire.Stacks) -> None:
        desk = self._desk
        if desk.stacks.add(message, desk.state):
            path = desk.storage.home.stacks_file(message.generation)
            desk.stacks.write(path)
            desk.warn("\n  ".join([f"what the ranks are doing (in full: {path}):", *desk.stacks.summary()]))
            desk.queue.append(ev.StacksTaken(message.generation, desk.stacks.culprit()))

    def _hear_probe(self, node: str, ok: bool, findings: list[str]) -> None:
        desk = self._desk
        if not ok:
            desk.warn(f"{node} is not fit to train on, and is not used: {'; '.join(findings)}")
            desk.fleet.roster.is_unfit(node)
            self._place_anew()

    def _hear_of_peers(self, node: str, message: wire.DoorOpen | wire.Met) -> None:
        desk = self._desk
        finding = desk.fleet.peers.hear(node, message)
        if finding is not None:
            desk.warn(finding)
            self._place_anew()

    def _place_anew(self) -> None:
        """Some nodes are not to be used any more. A group on them goes on if it has begun, or if the others are
        not enough; else its ranks may wait for each other for long, and have nothing to lose."""
        desk = self._desk
        desk.queue.append(ev.Capacity(desk.fleet.slots()))
        self._work_off()  # what was reported before counts
        state = desk.state
        has_begun, has_room = any(rank.reports for rank in state.ranks), state.world_size is not None
        if state.group_lives and has_room and not has_begun and not desk.fleet.is_well_placed(state.generation):
            desk.queue.append(ev.HandedOver(state.generation, HandoverReason.RESIZE))
