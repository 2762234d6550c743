"""Carries out the kernel's effects on nodes, storage, files, displays and callbacks. It decides nothing. Immediate
answers to an effect are in ``answers``; all others come through the inbox.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import cloudpickle

from holdfast.core.run import events as ev
from holdfast.core.run.observer import Observer
from holdfast.core.run.state import RankStatus, RunState
from holdfast.engine.engine_interface import EngineSession
from holdfast.errors import CheckpointDamagedError, message_of
from holdfast.store import report_log
from holdfast.store.manifests import Manifest
from holdfast.store.metrics import MetricsWriter

from . import effects as fx
from .display import Display
from .plan import Plan
from .reports import metrics_in
from .showing import show
from .storage import Storage

_WRITERS_END_WITHIN_S = 1.0
_UNKNOWN_SPACE = 1 << 62


class Executor:
    def __init__(self, plan: Plan, storage: Storage, display: Display, observer: Observer) -> None:
        self._plan, self._storage, self._display, self._observer = plan, storage, display, observer
        self._writer: MetricsWriter | None = None
        self.session: EngineSession | None = None
        self.answers: list[Any] = []  # inputs
        self._shown: tuple[int, Mapping[RankStatus, int]] = (0, {})  # the attempt, and its workers by status

    def carry_out(self, effect: fx.Effect) -> None:
        _CARRY_OUT[type(effect)](self, effect)

    def warn(self, text: str) -> None:
        self._display.warning(text)
        self._observer.warned(text)

    def close_session(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def close_reports(self) -> None:
        if self._writer is not None:
            self._writer.close(sync=not self._storage.has_reports_too)

    def close_datasets(self) -> None:
        if self._plan.shards is not None:
            self._plan.shards.close()

    def show_workers(self, state: RunState) -> None:
        """The current state, if it differs from the last one shown: once for all events that were acted on together."""
        if state.attempt is not None and (state.attempt_number, state.ranks.statuses) != self._shown:
            self._shown = state.attempt_number, state.ranks.statuses
            self._display.workers({rank: r.status.value for rank, r in enumerate(state.ranks)})

    # Nodes

    def _accept(self, effect: fx.Accept) -> None:
        if self.session is not None:
            self.session.accept(effect.node, effect.pid)

    def _send(self, effect: fx.Send) -> None:
        if self.session is not None:  # otherwise it was closed
            self.session.send(effect.node, effect.message)

    # The journal and the reports

    def _journal(self, effect: fx.Journal) -> None:
        self._storage.write(effect.entries, partial(self.answers.append, fx.Journalled(effect.number)))

    def _write_reports(self, effect: fx.WriteReports) -> None:
        if self._writer is None:
            self._writer = MetricsWriter(self._storage.home)
        self._writer.append(effect.attempt_number, effect.rank, effect.lines)

    def _read_logs(self, effect: fx.ReadLogs) -> None:
        report_log.await_writers(effect.paths.values(), _WRITERS_END_WITHIN_S)
        read = {rank: report_log.parse(report_log.read(path, any_boot=True)) for rank, path in effect.paths.items()}
        self.answers.append(fx.LogsRead(effect.attempt_number, read))

    def _write_stacks(self, effect: fx.WriteStacks) -> None:
        path = self._storage.home.stacks_file(effect.attempt_number)
        with contextlib.suppress(OSError):  # they are shown nevertheless
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(effect.text)
        self.warn("\n  ".join([f"what the ranks are doing (in full: {path}):", *effect.summary]))

    def _measure_disk(self, _effect: fx.MeasureDisk) -> None:
        try:
            found = os.statvfs(self._storage.run_dir.parent)
        except OSError:
            self.answers.append(fx.DiskMeasured(_UNKNOWN_SPACE))
        else:
            self.answers.append(fx.DiskMeasured(found.f_bavail * found.f_frsize))

    # Checkpoints

    def _commit(self, effect: fx.Commit) -> None:
        self._storage.commit(effect.manifest, effect.shards, self._sync_reports)

    def _sync_reports(self) -> None:
        """Called in any thread."""
        if self._writer is not None:
            self._writer.sync()

    def _verify(self, effect: fx.Verify) -> None:
        self._storage.verify(effect.id, lambda line: self.answers.append(fx.ManifestFound(effect.id, line)))

    def _discard(self, effect: fx.DiscardStaged) -> None:
        self._storage.discard(effect.attempt_number, effect.index, effect.world_size)

    def _collect(self, effect: fx.Collect) -> None:
        self._storage.collect(effect.keep)

    def _adopt(self, effect: fx.Adopt) -> None:
        self._storage.adopt(effect.manifest, effect.reports, self._adopted, self._lacking)

    def _adopted(self, event: ev.Committed, manifest: Manifest) -> None:
        self.answers.append(fx.AdoptedHere(event, manifest))

    def _lacking(self, manifest: Manifest, paths: Sequence[str]) -> None:
        self.answers.append(fx.Lacking(manifest, paths))

    def _note_adopted(self, effect: fx.NoteAdopted) -> None:
        self._storage.note_taken_up(list(effect.manifests), effect.state)

    def _tell_late_reports(self, _effect: fx.TellLateReports) -> None:
        if self._plan.on_report is not None:
            for late in self._storage.late_reports():
                self._plan.on_report(*late)

    # Requests of workers

    def _list_checkpoints(self, effect: fx.ListCheckpoints) -> None:
        listed = []
        for id, status, validated in effect.listed:
            try:
                manifest = self._storage.read_manifest(id)
            except CheckpointDamagedError as error:
                self.answers.append(ev.Damaged(id, str(error)))
                continue
            listed.append({"id": id, "metrics": {**manifest.metrics, **validated}, "status": status})
        self.answers.append(fx.Answered(effect.asked, cloudpickle.dumps(listed)))

    def _give_shard(self, effect: fx.GiveShard) -> None:
        asked = effect.asked
        name, lost = cloudpickle.loads(asked.request.body)
        try:
            assert self._plan.shards is not None
            shard = self._plan.shards.shard(name, asked.attempt_number, asked.rank, effect.nodes, lost)
        except Exception as error:
            text = f"dataset {name!r} cannot be split: {type(error).__name__}: {message_of(error)}"
            self.answers.append(fx.Answered(asked, b"", text))
        else:
            self.answers.append(fx.Answered(asked, cloudpickle.dumps(shard)))

    # People and callbacks

    def _stepped(self, effect: fx.Stepped) -> None:
        show(effect, self._plan, self._display, self._observer)

    def _call_back(self, effect: fx.CallBack) -> None:
        assert self._plan.on_report is not None
        self._plan.on_report(effect.number, effect.metrics, effect.checkpoint)

    def _show_progress(self, effect: fx.ShowProgress) -> None:
        self._display.progress(effect.report, metrics_in(effect.line))

    def _show_output(self, effect: fx.ShowOutput) -> None:
        for line in effect.lines:
            self._display.output(effect.rank, line)

    def _show_backoff(self, effect: fx.ShowBackoff) -> None:
        self._display.state("waiting", f"next attempt in {effect.seconds:.1f} s")


_CARRY_OUT: dict[type[fx.Effect], Callable[[Executor, Any], None]] = {
    fx.Accept: Executor._accept,
    fx.Send: Executor._send,
    fx.Journal: Executor._journal,
    fx.WriteReports: Executor._write_reports,
    fx.ReadLogs: Executor._read_logs,
    fx.WriteStacks: Executor._write_stacks,
    fx.MeasureDisk: Executor._measure_disk,
    fx.Commit: Executor._commit,
    fx.Verify: Executor._verify,
    fx.Delete: lambda executor, effect: executor._storage.delete(effect.id),
    fx.Quarantine: lambda executor, effect: executor._storage.quarantine(effect.id, effect.why),
    fx.DiscardStaged: Executor._discard,
    fx.Collect: Executor._collect,
    fx.Adopt: Executor._adopt,
    fx.NoteAdopted: Executor._note_adopted,
    fx.TellLateReports: Executor._tell_late_reports,
    fx.ListCheckpoints: Executor._list_checkpoints,
    fx.GiveShard: Executor._give_shard,
    fx.Stepped: Executor._stepped,
    fx.CallBack: Executor._call_back,
    fx.ShowProgress: Executor._show_progress,
    fx.ShowOutput: Executor._show_output,
    fx.ShowAttempt: lambda executor, effect: executor._display.attempt(
        effect.attempt_number, effect.world_size, effect.joined, effect.left
    ),
    fx.ShowBackoff: Executor._show_backoff,
    fx.Warn: lambda executor, effect: executor.warn(effect.text),
}
