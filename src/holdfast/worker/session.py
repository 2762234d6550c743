"""The train function's connection to its run: one session in a training process, reached through ``current()``.

``report`` never waits for other ranks: it stages the files, logs the report beside them, tells the agent, and returns;
in lockstep, when the driver allows it. If a function of the user uploads the files, the report and all later ones are
logged and sent when that function has returned.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import cloudpickle
from msgspec import structs

from holdfast.errors import CollectiveError, HoldfastError, StorageError
from holdfast.store import values
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import line as metrics_line
from holdfast.store.report_log import ReportLog, StagedReport
from holdfast.store.staging import FileEntry
from holdfast.wire.channel import Channel
from holdfast.wire.worker_messages import (
    Armed,
    Assignment,
    CheckpointCommitted,
    GoOn,
    HandoverAt,
    Notice,
    Noticed,
    Offer,
    PeersLost,
    Pressure,
    Ready,
    Reply,
    Report,
    SnapshotKept,
    StandsBy,
    TakeRank,
    TookSnapshot,
    WorkerRequest,
)
from holdfast.worker.report_files import Files as Files
from holdfast.worker.report_outbox import ReportOutbox
from holdfast.worker.run_address import address_in
from holdfast.worker.worker_place import Placed

_current: Session | None = None
_ABOUT_REPORTS = ("checkpoints", "durable")


class SessionMisuseError(RuntimeError):
    """A function of training was called outside of a train function."""


def current(what: str = "this function") -> Session:
    if _current is None:
        raise SessionMisuseError(
            f"{what} works only inside a train function. Call it in the function that you pass to a trainer."
        )
    return _current


def has_current() -> bool:
    return _current is not None


def install(session: Session | None) -> Session | None:
    """Make it the current one; returns the one before, for a run inside a train function."""
    global _current
    before, _current = _current, session
    return before


class Session(Placed):
    is_launched = False  # by torchrun, which forms the process group

    def __init__(
        self,
        assignment: Assignment,
        channel: Channel[Any],
        on_lost: Callable[[], None],
        on_upload_failed: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        super().__init__(None if assignment.standby else assignment.place, lambda: channel.send(StandsBy()))
        self.world_size, self.node_id = assignment.world_size, assignment.node_id
        self.devices = assignment.place.devices
        self.address = assignment.address  # where other nodes reach this one
        self.attempt_number = assignment.attempt_number
        self.joins = assignment.joins  # its peers train already, and it takes the place of one
        self.on_peers_lost: Callable[[int], None] = lambda _number: None  # called by another thread
        self.run_name, self.run_dir = assignment.run_name, assignment.run_dir
        self.metadata, self.validates = assignment.metadata, assignment.validates
        self._address = address_in(assignment)
        self.common_metrics: dict[str, Any] = {}  # of all reports, unless they say otherwise
        self.resumed_from = self._newest = assignment.offer
        self.group_timeout_s = 1800.0  # of the framework's collectives
        self.initial: Any = None  # the trainer's resume_from_checkpoint, offered while the run has no checkpoint
        self.datasets: dict[str, Any] = {}
        self.is_out_of_memory: Callable[[BaseException], bool] = lambda _error: False  # as the framework knows it
        self.started = False
        self._layout = RunLayout(Path(assignment.run_dir))
        self._store = CheckpointStore(self._layout)
        self._replaces = self.joins > 0
        self._channel, self._on_lost = channel, on_lost
        self._outbox = ReportOutbox(on_upload_failed)
        self._at_end: list[Callable[[], None]] = []
        self._reports = self._made = 0  # ``_made``: reports of the rank before this process took its place
        self._has_warned = False  # that a metric cannot be stored
        self._requests = itertools.count(1)
        self._report_lock = threading.Lock()
        self._reporting: int | None = None  # the thread in report()
        self._answers = threading.Condition()
        self._answered: dict[int, Reply] = {}
        self._closed = self._pressure = False
        self.memory = assignment.memory  # where snapshots go, and what to resume from there
        self.snapshot_kept = SnapshotKept(0, -1)  # the newest that is complete on all ranks, or never will be
        self.regrouped_at = -1  # the step behind which all ranks have continued after the last live recovery
        self._lockstep, self._rank_zero_only = assignment.lockstep, assignment.rank_zero_only
        self._may_return = -1  # in lockstep: the reports up to this one
        self.save_asked = False  # by the driver: the next report is to have a checkpoint
        self._notice: Notice | None = None  # the attempt is about to end
        self._handover_at: int | None = None  # from this report on; None until all ranks know of it
        threading.Thread(target=self._listen, name="holdfast-session", daemon=True).start()

    @cached_property
    def _log(self) -> ReportLog:
        return ReportLog(self._layout.report_log(self.attempt_number, self.rank), continues=self._replaces)

    def _take_rank(self, message: TakeRank) -> None:
        self.joins, self.memory, self._replaces = message.joins, message.memory, True
        self.resumed_from = self._newest = message.offer
        self.place.take(message.place)

    def ready(self) -> None:
        """The train function is about to be entered."""
        self.started = True
        self._channel.send(Ready())

    def report(
        self,
        metrics: dict[str, Any],
        files: Files | Callable[[int], Files] | None = None,
        *,
        name: str | None = None,
        wait: bool = False,
        validation: dict[str, Any] | None = None,
    ) -> None:
        """A function in ``files`` uploads them, in the background unless the report is waited for. It takes the
        report's index."""
        here = threading.get_ident()
        if self._reporting == here:
            raise RuntimeError(
                "report() was called by a signal handler that had interrupted report(): "
                "set a flag in the handler, and report from the training loop"
            )
        if self.rank != 0 and self._rank_zero_only:
            raise RuntimeError(
                f"rank {self.rank} called report(), but the run has CheckpointConfig(rank_zero_only=True). "
                "Report on rank 0 only, or remove rank_zero_only to save the files of every rank."
            )
        with self._report_lock:
            self._reporting = here
            try:
                self._await_handover_point()
                index = self._reports
                if index < self._made:
                    self._skip(files)
                    return
                line = self._line(index, metrics)
                if files is None and self._outbox.is_idle:  # the most frequent ones
                    self._say(index, line)
                else:
                    say = partial(self._say, index, line, name, wait, validation)
                    self._say_in_turn(say, index, files, wait)
                self._reports = index + 1
            finally:
                self._reporting = None
        if files is not None and self._handover_at is not None and index >= self._handover_at:
            self._await_end()
        if wait and files is not None:
            self.request("durable", None, None)
        if self._lockstep:
            self._await_go_on(index)

    def _say_in_turn(self, say: Any, index: int, files: Files | Callable[[int], Files] | None, wait: bool) -> None:
        if callable(files):
            self._outbox.put(lambda: say(self._stage(index, files(index))), behind=not wait)
        else:
            self._outbox.put(partial(say, self._stage(index, files)))

    def _skip(self, files: Files | Callable[[int], Files] | None) -> None:
        """The lost rank had made this report already."""
        self._reports += 1
        if isinstance(files, Files) and files.directory is not None and files.remove:
            shutil.rmtree(files.directory, ignore_errors=True)

    def arm(self) -> None:
        """From now on a step of this rank can be done again when a peer is lost."""
        self.place.get()
        self._channel.send(Armed())

    def regroup(self, steps: int, endpoint: tuple[str, int] | None) -> dict[str, Any]:
        """Wait until all ranks do this; who has which state then, and where they meet. ``endpoint``: of a replacement,
        where it serves the store for that."""
        found: dict[str, Any] = self.request(
            "regroup", {"steps": steps, "joins": endpoint is not None, "endpoint": endpoint}
        )
        self.regrouped_at = max(found["steps"])
        return found

    def continue_behind(self, reports: int, made: int) -> None:
        """The next report has this index. Of those before ``made`` the run knows already."""
        self._reports, self._made = reports, made

    def _line(self, index: int, metrics: dict[str, Any]) -> bytes:
        """A metric of a type that cannot be stored does not end the training: its text is stored."""
        if self.common_metrics:
            metrics = {**metrics, **{name: at for name, at in self.common_metrics.items() if name not in metrics}}
        try:
            return metrics_line(index, time.time(), metrics)
        except TypeError as error:
            if not self._has_warned:
                self._has_warned = True
                print(f"holdfast: {error}. Its text is stored instead", file=sys.stderr, flush=True)
            return metrics_line(index, time.time(), values.as_text(metrics))

    def _stage(self, index: int, files: Files | None) -> list[FileEntry] | None:
        if files is None or files.is_empty:
            return None
        if files.directory is None:
            return list(files.elsewhere)
        self._wait_for_storage()
        target = self._layout.shard_dir(self.attempt_number, index, self.rank)
        entries = self._store.stage(Path(files.directory), target, files.move)
        if files.remove:
            shutil.rmtree(files.directory, ignore_errors=True)
        return entries

    def _say(
        self,
        index: int,
        line: bytes,
        name: str | None = None,
        wait: bool = False,
        validation: dict[str, Any] | None = None,
        files: list[FileEntry] | None = None,
    ) -> None:
        if files is None:
            self._log.append(line)
            self._channel.send(Report(index, line))
            return
        self._log.append(line, StagedReport(index, files, name, validation))
        arguments = b"" if validation is None else values.encode(validation)
        elsewhere = [(entry.path, entry.size, entry.digest, entry.at) for entry in files if entry.at]
        self._channel.send(Report(index, line, True, name, arguments, wait, elsewhere))

    @property
    def reports_are_told(self) -> bool:
        """Whether the agent knows all reports that were made, so that a later snapshot may count."""
        return self._outbox.is_empty

    def tell_snapshot(self, taken: TookSnapshot) -> None:
        self._channel.send(structs.replace(taken, reports=self._reports))

    def await_kept(self, step: int, timeout_s: float) -> bool:
        """Whether the snapshot of that step is complete on all ranks, so that an earlier one may be overwritten."""
        with self._answers:
            return self._answers.wait_for(lambda: self.snapshot_kept.step >= step or self._closed, timeout_s)

    def at_end(self, call: Callable[[], None]) -> None:
        """Call it when the train function has returned and everything that it left running has ended."""
        self._at_end.append(call)

    def await_uploads(self) -> None:
        self._outbox.drain()

    def leave(self) -> None:
        """What ``at_end`` was told of, the last first."""
        while self._at_end:
            self._at_end.pop()()

    def end(self, returned: bool) -> None:
        """The train function has ended: this rank makes no further reports."""
        if not self.place.is_known:
            return
        with self._report_lock, contextlib.suppress(StorageError):
            if returned and self.attempt_number:  # else it is a task beside the workers, of no attempt
                self._log.returned()
            self._log.close()

    def notice(self) -> Notice | None:
        """That the attempt is about to end. Every rank learns it at the same place in its loop.

        When the notice comes, a separate thread of each rank says how many reports the rank has made, whatever the
        train function is doing; then a report is chosen that no rank has made. Until it is known, no rank may pass it.
        """
        self._await_handover_point()
        reached = self._handover_at is not None and self._reports >= self._handover_at
        return self._notice if reached else None

    def _await_handover_point(self) -> None:
        if self._notice is not None and self._handover_at is None:
            with self._answers:
                self._answers.wait_for(lambda: self._handover_at is not None or self._closed)

    def _await_go_on(self, index: int) -> None:
        with self._answers:
            self._answers.wait_for(lambda: self._may_return >= index or self._closed)
            if self._may_return < index:
                raise HoldfastError("the run ended while this worker waited in report()")

    @property
    def awaits_decision(self) -> bool:
        """In lockstep: whether the run may be stopped or paused after the next report."""
        return self._lockstep and self._reports > self._may_return

    def _await_end(self) -> None:
        """All work of this worker is in the checkpoint that it has just reported; its successor continues there."""
        with self._answers:
            self._answers.wait_for(lambda: self._closed)

    @cached_property
    def location(self) -> Location:
        """Where the run is stored."""
        return self._address.location()

    def _wait_for_storage(self) -> None:
        """Storage lags so far behind that nothing more may be staged. Staged files are uploaded without this worker."""
        with self._answers:
            self._answers.wait_for(lambda: not self._pressure or self._closed)

    def current_checkpoint(self) -> Offer | None:
        """The newest checkpoint that is known to be committed, or else the one that the attempt resumed from."""
        return self._newest

    def request(self, kind: str, body: Any, timeout_s: float | None = None) -> Any:
        """Ask the driver and wait for its answer."""
        self.place.get()
        if kind in _ABOUT_REPORTS and not self._outbox.drain(timeout_s):
            raise TimeoutError(f"reports were still being uploaded after {timeout_s} s")
        number = next(self._requests)
        self._channel.send(WorkerRequest(number, kind, cloudpickle.dumps(body), self._reports))
        with self._answers:
            if not self._answers.wait_for(lambda: number in self._answered or self._closed, timeout_s):
                raise TimeoutError(f"no answer to {kind!r} within {timeout_s} s")
            reply = self._answered.pop(number, None)
        if reply is None:
            raise HoldfastError(f"the run ended while this worker waited for {kind!r}")
        if reply.error:
            raise CollectiveError(reply.error)
        return cloudpickle.loads(reply.body)

    def _listen(self) -> None:
        for message in self._channel.receive():
            if isinstance(message, CheckpointCommitted):
                self._newest = message.offer
                self._log.durable = max(self._log.durable, message.index)
            elif isinstance(message, TakeRank):
                self._take_rank(message)
            elif isinstance(message, PeersLost):
                self.on_peers_lost(message.number)
            else:
                with self._answers:
                    self._take_in(message)
                    self._answers.notify_all()
        with self._answers:
            self._closed = True
            self._answers.notify_all()
        self._on_lost()

    def _take_in(self, message: object) -> None:
        """With the lock, for those that wait."""
        match message:
            case GoOn():
                self._may_return = max(self._may_return, message.index)
                self.save_asked = self.save_asked or message.save
            case SnapshotKept() if message.step >= self.snapshot_kept.step:
                self.snapshot_kept = message
            case Pressure():
                self._pressure = message.on
            case Notice():
                self._notice, self._handover_at = message, None
                self._channel.send(Noticed(self._reports))
            case HandoverAt():
                self._handover_at = message.index
            case Reply():
                self._answered[message.request] = message
