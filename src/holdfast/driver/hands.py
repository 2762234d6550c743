"""The hands of a driver: each command of the machine is carried out. Nothing is decided here."""

from __future__ import annotations

import time

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import HandoverReason, ValidationStatus
from holdfast.errors import StorageError
from holdfast.store.manifests import Manifest
from holdfast.wire import messages as wire

from .beginning import Beginning
from .desk import Desk
from .remote_storage import RemoteStorage
from .stacks import Stacks
from .storage import DiskStorage


class Hands:
    def __init__(self, desk: Desk, beginning: Beginning) -> None:
        self._desk, self._beginning = desk, beginning
        self.finish: do.Finish | None = None  # the machine's last command

    def carry_out(self, command: do.Command) -> None:
        desk = self._desk
        match command:
            case do.StartGroup():
                self._start_group(command)
            case do.AskHandover():
                desk.handing_over.ask(command)
            case do.DumpStacks(generation):
                desk.stacks = Stacks()
                desk.fleet.tell(wire.DumpStacks(generation))
            case do.Rest(node, on):
                desk.fleet.roster.rest(node, on)
                if self._beginning.is_over and desk.fleet.grows:
                    desk.queue.append(ev.Capacity(desk.fleet.slots()))
            case do.StopGroup(generation, graceful):
                if desk.fleet.stop(generation, graceful):
                    desk.queue.append(ev.GroupGone(generation))
            case do.Commit():
                self._commit(command)
            case do.Gather():
                self._gather(command)
            case do.Stall(on):
                desk.fleet.stall(on)
            case do.Upload(generation, index, id, ranks):
                manifest = desk.fleet.manifest_of(id)
                if manifest is not None:  # else it could not be gathered, and the machine hears of it
                    desk.fleet.upload(manifest, ranks)
            case do.Discard(generation, index):
                desk.fleet.discard(generation, index)
                if isinstance(desk.storage, DiskStorage):
                    desk.storage.discard(generation, index, desk.plan.spec.num_workers)
            case do.Delete(id):
                desk.storage.delete(id)
            case do.Verify(id):
                desk.verification.begin(id, desk.state)
            case do.Quarantine(id, why):
                desk.storage.quarantine(id, why)
            case do.Validate(id):
                self._validate(id)
            case do.SetTimer(timer, after_s):
                desk.timers[timer] = time.monotonic() + after_s
                if timer == timers.BACKOFF:
                    desk.display.state("waiting", f"{after_s:.1f} s before the next attempt")
            case do.CancelTimer(timer):
                desk.timers.pop(timer, None)
            case do.Warn(text):
                desk.warn(text)
            case do.Finish():
                self.finish = command

    def _start_group(self, command: do.StartGroup) -> None:
        desk = self._desk
        desk.accounts.begin(command.generation)
        desk.book.begin(command.generation, command.world_size, command.base)
        desk.returned.clear()
        desk.display.group(command.generation, command.world_size)
        desk.handing_over.forget()
        if not desk.fleet.start(command):
            # A node has gone since this was decided: it is decided again.
            desk.queue.append(ev.Capacity(desk.fleet.slots()))
            desk.queue.append(ev.HandedOver(command.generation, HandoverReason.RESIZE))

    def _gather(self, command: do.Gather) -> None:
        desk = self._desk
        manifest = self._manifest(command)
        try:
            desk.fleet.gather(command, manifest)
        except StorageError as error:  # the ranks' files do not go together
            desk.queue.append(ev.CommitFailed(command.generation, command.index, str(error)))

    def _commit(self, command: do.Commit) -> None:
        desk = self._desk
        if isinstance(desk.storage, RemoteStorage):
            desk.storage.commit(desk.fleet.gathered(command.generation, command.index))
            return
        desk.book.sync()  # the history up to a checkpoint is as durable as the checkpoint
        desk.storage.commit(self._manifest(command), desk.fleet.shards(command))

    def _manifest(self, command: do.Commit | do.Gather) -> Manifest:
        """As far as it is known before the files are put together."""
        desk = self._desk
        metrics = desk.book.metrics_of(command.generation, command.index)
        arguments = desk.arguments.pop((command.generation, command.index), None)
        return desk.storage.new_manifest(command, metrics, arguments)

    def _validate(self, id: str) -> None:
        desk = self._desk
        if desk.plan.validation is None:
            desk.queue.append(ev.Validated(id, ValidationStatus.NONE))
            return
        arguments = desk.past.validations.get(id) or {}
        payload, timeout_s = desk.plan.validation(id, arguments)
        desk.fleet.run_task(id, payload, timeout_s)
