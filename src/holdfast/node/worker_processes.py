"""The processes of a run on a node: the workers of its attempts, and tasks beside them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from holdfast.node import worker_failure
from holdfast.node.driver_connection import RunConnection
from holdfast.node.process_pool import ProcessPool
from holdfast.node.stack_collection import Subject
from holdfast.node.temporary_sweep import TemporarySweep
from holdfast.node.watched_process import WatchedProcess
from holdfast.node.zygote import not_started
from holdfast.platform import process_control
from holdfast.store import report_log
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import (
    Armed,
    Assignment,
    Memory,
    Noticed,
    Offer,
    Place,
    Pressure,
    Raised,
    Ready,
    Reply,
    Report,
    Returned,
    StandsBy,
    TakeRank,
    TookSnapshot,
    WorkerRequest,
)

_PEER_GRACE_S = 1.0  # how long an exception waits for the exit of a peer that may have caused it


class WorkerProcesses:
    def __init__(
        self,
        session: wire.Configure,
        layout: RunLayout,
        pool: ProcessPool,
        selector: selectors.BaseSelector,
        line: RunConnection,
        submit: Callable[[Callable[[], None]], None],
        has_deadline: Callable[[], None],
        snapshot_taken: Callable[[int, int, TookSnapshot], None],
    ) -> None:
        self._session, self._layout, self._pool = session, layout, pool
        self._selector, self._line, self._submit = selector, line, submit
        self._has_deadline, self._snapshot_taken = has_deadline, snapshot_taken
        self._payload = process_control.anonymous_file(session.payload)  # what the workers of the session run
        self._processes: dict[int, WatchedProcess] = {}  # by token
        self._raised: list[WatchedProcess] = []  # exceptions that have not been forwarded yet
        self._sweep = TemporarySweep(session.env, submit)
        self._pressure, self._orders = False, Counter[int]()  # orders that started processes, by attempt
        pool.want([*session.essential, *session.preload])

    @property
    def is_empty(self) -> bool:
        return not self._processes

    # Orders

    def start_attempt(self, order: wire.StartWorkers, offer: Offer | None, memory: Memory | None) -> None:
        self._pool.warm_later()
        self._orders[order.attempt_number] += 1
        if order.attempt_number > 1:
            self._submit(lambda: report_log.remove_before(self._layout.staging_dir, order.attempt_number))
        for place in order.places:
            self.end_rank(order.attempt_number, place.rank)
            log = self._layout.log_file(order.attempt_number, place.rank)
            process = self._launch(order.attempt_number, place.rank, log, self._payload, joins=order.joins)
            if process is None:
                return
            assignment = self._assignment(process, order.world_size, place, order.base, offer)
            process.send(structs.replace(assignment, address=order.address, joins=order.joins, memory=memory))
            if self._pressure:
                process.send(Pressure(True))

    def start_standby(self, order: wire.StartStandby, memory: Memory | None) -> None:
        self._orders[order.attempt_number] += 1
        log = self._layout.standby_log(order.attempt_number, order.number)
        process = self._launch(order.attempt_number, -order.number, log, self._payload, standby=order.number)
        if process is not None:
            assignment = self._assignment(process, order.world_size, Place(-1, 0, 1, 0, order.cpus), order.base, None)
            process.send(structs.replace(assignment, address=order.address, memory=memory, standby=order.number))

    def promote(self, order: wire.PromoteStandby, offer: Offer | None, memory: Memory | None) -> None:
        """If the process has ended, the driver has already been told."""
        attempt_number, place = order.attempt_number, order.place
        self.end_rank(attempt_number, place.rank)
        for process in self._workers_of(attempt_number, standbys=True):
            if process.standby == order.number and not process.stopping:
                self._hear_output(process)
                process.take_rank(place.rank, order.joins, self._layout.log_file(attempt_number, place.rank))
                self._line.say(wire.WorkerStarted(attempt_number, place.rank, process.pid, process.mark))
                self._line.say(wire.WorkerIsReady(attempt_number, place.rank, order.joins))
                self._send(process, TakeRank(place, order.joins, offer, memory))

    def end_rank(self, attempt_number: int, rank: int) -> None:
        """The process of a replaced rank may only be stopped or hang. Ignore it from now on."""
        for process in self._workers_of(attempt_number):
            if process.rank == rank:
                process.stopping = True
                self._kill_at(process, 0.0)

    def run_task(self, order: wire.RunTask) -> None:
        payload = process_control.anonymous_file(order.payload)
        process = self._launch(0, -1, self._layout.logs_dir / f"{order.task}.log", payload, order.task)
        os.close(payload)
        if process is None:
            return
        if order.timeout_s is not None:
            self._kill_at(process, time.monotonic() + order.timeout_s)
        process.send(self._assignment(process, 1, Place(0, 0, 1, 0), 0, None))

    def stop_attempt(self, order: wire.StopWorkers) -> None:
        workers = self._workers_of(order.attempt_number, standbys=True)
        for process in workers:
            process.stopping = True
            has_begun = process.forked and not process.standby
            if not order.graceful or not has_begun:  # then nothing is running that could exit gracefully
                self._kill_at(process, 0.0)
            else:
                self._kill_at(process, time.monotonic() + self._session.stop_grace_s)
                if process.pid and not process.returned:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGTERM)
        if not workers:
            self._line.say(wire.WorkersGone(order.attempt_number, self._orders[order.attempt_number]))

    def tell(self, message: wire.Message, attempt_number: int, rank: int | None = None, joins: int = -1) -> None:
        """The workers of an attempt, or one of them; ``joins``: of the rank's processes, that one alone."""
        for process in self._workers_of(attempt_number):
            if rank in (None, process.rank) and joins in (-1, process.joins):
                self._send(process, message)

    def press(self, order: Pressure) -> None:
        self._pressure = order.on
        for process in self._processes.values():
            if not process.task:
                self._send(process, order)

    def subjects(self, attempt_number: int) -> list[Subject]:
        """The workers of an attempt, to be asked for their stacks."""
        workers = self._workers_of(attempt_number)
        return [Subject(p.rank, p.pid if p.forked else None, os.dup(p.stacks)) for p in workers]

    def _workers_of(self, attempt_number: int, standbys: bool = False) -> list[WatchedProcess]:
        found = [p for p in self._processes.values() if p.attempt_number == attempt_number and not p.task]
        return found if standbys else [p for p in found if not p.standby]

    def _assignment(
        self, process: WatchedProcess, world: int, place: Place, base: int, offer: Offer | None
    ) -> Assignment:
        s = self._session
        common = (s.node_id, s.run_name, str(self._layout.root), s.storage, offer)
        own = (s.env, s.sys_path, s.argv, s.cwd)
        last = (s.metadata, s.validates, process.mark)
        found = Assignment(process.attempt_number, world, base, place, *common, *own, *last)
        return found if process.task else structs.replace(found, lockstep=s.lockstep, rank_zero_only=s.rank_zero_only)

    def _launch(
        self, attempt_number: int, rank: int, log: Path, payload: int, task: str = "", standby: int = 0, joins: int = 0
    ) -> WatchedProcess | None:
        """None if this machine has no capacity for it; the driver is told."""
        try:
            process = WatchedProcess(attempt_number, rank, self._pool.token(), log, task)
        except OSError as error:
            self._line.say(worker_failure.not_launched(attempt_number, rank, joins, task, standby, not_started(error)))
            return None
        process.standby, process.joins = standby, joins
        self._processes[process.token] = process
        self._watch(process)
        self._selector.register(process.output, selectors.EVENT_READ, lambda _mask: self._hear_output(process))
        self._pool.launch(self, process, payload)
        return process

    def _send(self, process: WatchedProcess, message: wire.Message) -> None:
        process.send(message)
        self._watch(process)

    def watch_all(self) -> None:
        """The driver accepts messages again, or no longer."""
        for process in self._processes.values():
            self._watch(process)

    def _watch(self, process: WatchedProcess) -> None:
        """Watch only for what can happen on the worker's channel now."""
        if process.ended:
            return
        wanted = selectors.EVENT_WRITE if process.has_unsent else 0
        if self._line.listening and process.forked and not process.silent:  # first its start, then its messages
            wanted |= selectors.EVENT_READ
        if wanted == process.watched_for:
            return
        if process.watched_for:
            self._selector.unregister(process.channel)
        if wanted:
            self._selector.register(process.channel, wanted, lambda mask: self._serve_channel(process, mask))
        process.watched_for = wanted

    def _serve_channel(self, process: WatchedProcess, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            process.flush()
        if mask & selectors.EVENT_READ:
            self._hear_worker(process)
        self._watch(process)

    # Messages from the pool

    def on_forked(self, process: WatchedProcess) -> None:
        self._sweep.began(process.pid, process.mark)
        self._pool.oom.look(process.pid)
        self._line.say(wire.WorkerStarted(process.attempt_number, process.rank, process.pid, process.mark))
        self._watch(process)
        if process.kill_at is not None:
            self._has_deadline()

    def on_paused(self, process: WatchedProcess, stopped: bool) -> None:
        if not process.standby:
            self._line.say(wire.WorkerIsStopped(process.attempt_number, process.rank, stopped, process.joins))

    def on_ended(self, process: WatchedProcess, status: int) -> None:
        """The process has exited: read the rest of its messages, then report its end."""
        process.ended, process.status = True, status
        self._hear_worker(process)
        self._hear_output(process)
        for source in (process.channel.fileno(), process.output):
            if source in self._selector.get_map():
                self._selector.unregister(source)
        if not (process.returned or process.raised or process.failed or process.stopping):
            self._tell_failure(process)
        process.close()
        self._pool.oom.forget(process.pid)
        del self._processes[process.token]
        self._sweep.ended(process.pid)
        self._pass_exceptions_on()
        if not process.task and not any(p.attempt_number == process.attempt_number for p in self._processes.values()):
            self._line.say(wire.WorkersGone(process.attempt_number, self._orders[process.attempt_number]))

    # Messages from the processes

    def _hear_worker(self, process: WatchedProcess) -> None:
        reports: list[Report] = []
        for message in process.messages():
            if isinstance(message, Report):
                reports.append(message)
                continue
            reports = self._pass_on(process, reports)
            self._hear(process, message)
        self._pass_on(process, reports)

    def _pass_on(self, process: WatchedProcess, reports: list[Report]) -> list[Report]:
        if reports and not process.task:
            workers = sum(not p.returned for p in self._workers_of(process.attempt_number))
            self._line.report(wire.Reports(process.attempt_number, process.rank, reports, process.joins), workers)
            if self._line.due is not None:
                self._has_deadline()
            self._pool.warm_soon()
        return []

    def _hear(self, process: WatchedProcess, message: Any) -> None:
        attempt_number, rank, joins = process.attempt_number, process.rank, process.joins
        match message:
            case Ready():
                process.started = True
                self._pool.oom.look(process.pid)
                if not process.task and not process.standby:
                    self._line.say(wire.WorkerIsReady(attempt_number, rank, joins))
                    if self._session.preload_early and all(p.started for p in self._workers_of(attempt_number)):
                        self._pool.warm_now()
            case Returned() | Raised() if process.standby:
                pass  # its end is told when its process ends
            case Returned():
                process.returned = True
                self._sweep.returned(process.pid)
                if process.task:
                    self._line.say(wire.TaskDone(process.task, message.body))
                else:
                    self._line.say(wire.WorkerHasReturned(attempt_number, rank, message.body, joins))
            case StandsBy():
                if process.standby:
                    self._line.say(wire.StandbyIsReady(attempt_number, process.standby))
            case Armed():
                self._pool.warm_soon()  # a replacement must not import what its peers have imported
                self._line.say(wire.WorkerIsArmed(attempt_number, rank, joins))
            case Noticed(reports):
                self._line.say(wire.WorkerNoticed(attempt_number, rank, reports, joins))
            case TookSnapshot():
                self._snapshot_taken(attempt_number, rank, message)
            case Raised():
                process.raised = message
                self._raised.append(process)
                self._has_deadline()
            case WorkerRequest() if process.task:
                error = f"a validation function runs beside the workers: it cannot ask the run for {message.kind!r}"
                self._send(process, Reply(attempt_number, rank, message.request, b"", error))
            case WorkerRequest():
                self._line.say(wire.Asked(attempt_number, rank, message, joins))

    def _hear_output(self, process: WatchedProcess) -> None:
        lines = process.lines()
        is_heard = self._line.listening  # our memory must not grow if the driver reads nothing; the log has the lines
        if lines and is_heard and not process.standby:
            self._line.say(wire.Output(process.rank, lines))
        if process.mute and process.output in self._selector.get_map():
            self._selector.unregister(process.output)

    # How they end

    def _tell_failure(self, process: WatchedProcess) -> None:
        process.failed = True
        self._line.say(worker_failure.news_of(process, self._pool.oom))

    def _pass_exceptions_on(self) -> None:
        """Forward exceptions in the order in which they were raised, after the exit of any peer that died before. The
        death of a peer makes the others raise exceptions, and the cause should be read first.
        """
        for other in [p for p in self._processes.values() if p.forked] if self._raised else ():
            self._hear_worker(other)
        for process in sorted(self._raised, key=lambda p: p.raised.at if p.raised else 0.0):
            assert process.raised is not None
            peers = [
                p for p in self._processes.values() if p.attempt_number == process.attempt_number and p is not process
            ]
            dying = any(not p.raised and not p.returned and p.pid and process_control.is_ending(p.pid) for p in peers)
            if dying and time.monotonic() < process.raised.at + _PEER_GRACE_S:
                return
            self._raised.remove(process)
            if not process.ended:
                self._hear_output(process)
            self._tell_failure(process)

    # Time

    def _kill_at(self, process: WatchedProcess, when: float) -> None:
        process.kill_at = when
        self._has_deadline()

    def due(self) -> float | None:
        if self._raised:
            return time.monotonic() + 0.002
        times = [p.kill_at for p in self._processes.values() if p.kill_at is not None and p.pid]
        return min(times if self._line.due is None else [*times, self._line.due], default=None)

    def on_time(self, now: float) -> None:
        if self._line.due is not None and self._line.due <= now:
            self._line.flush()
        self._pass_exceptions_on()
        for process in self._processes.values():
            if process.kill_at is not None and process.kill_at <= now and process.pid:
                process_control.kill_group(process.pid)
                process.kill_at, process.timed_out = None, True

    def end_all(self) -> None:
        """Stop them soon, because the run is closed."""
        for process in self._processes.values():
            process.stopping = True
            self._kill_at(process, 0.0)

    def kill(self) -> None:
        """Kill all of them immediately, because the agent exits."""
        for process in self._processes.values():
            if process.pid:
                process_control.kill_group(process.pid)

    def close(self) -> None:
        """After they have exited, their leftovers are removed."""
        self._sweep.finish()
        for process in self._processes.values():
            process.close()
        os.close(self._payload)
