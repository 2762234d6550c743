"""Each command of the machine becomes orders for nodes and effects for the runtime. Nothing is decided here."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.handover import not_started
from holdfast.core.run.state import ValidationStatus
from holdfast.errors import StorageError
from holdfast.store.manifests import FORMAT, Manifest
from holdfast.wire import messages as wire

from .driver_state import DriverState
from .effects import Commit, Delete, DiscardStaged, Quarantine, ShowBackoff, ShowGroup
from .stacks import Stacks
from .startup import Startup


class Outbound:
    def __init__(self, known: DriverState, startup: Startup) -> None:
        self._known, self._startup = known, startup
        self.finish: do.Finish | None = None  # the machine's last command

    def carry_out(self, command: do.Command) -> None:
        known = self._known
        match command:
            case do.StartGroup():
                self._start_group(command)
            case do.AskHandover():
                known.handover.ask(command, known.now.wall)
            case do.DumpStacks(generation):
                known.stacks = Stacks()
                known.outbox.tell(wire.DumpStacks(generation))
            case do.Rest(node, on):
                known.nodes.rest(node, on)
                if self._startup.is_over:
                    known.tell_of_room()
            case do.StopGroup(generation, graceful):
                if known.attempts.stop(generation, graceful):
                    known.queue.append(ev.GroupGone(generation))
            case do.Commit():
                self._commit(command)
            case do.Gather():
                self._gather(command)
            case do.Stall(on):
                known.outbox.stall(on)
            case do.Upload(generation, index, id, ranks):
                manifest = known.shards.manifest_of(id)
                if manifest is not None:  # else it could not be gathered, and the machine hears of it
                    known.shards.upload(manifest, ranks)
            case do.Discard(generation, index):
                known.shards.discard(generation, index)
                if not known.site.is_remote:
                    known.effects.append(DiscardStaged(generation, index, known.plan.spec.num_workers))
            case do.Delete(id):
                known.effects.append(Delete(id))
            case do.Verify(id):
                known.verification.begin(id, known.run)
            case do.Quarantine(id, why):
                known.effects.append(Quarantine(id, why))
            case do.Validate(id):
                self._validate(id)
            case do.SetTimer(timer, after_s):
                known.timers[timer] = known.now.monotonic + after_s
                if timer == timers.BACKOFF:
                    known.effects.append(ShowBackoff(after_s))
            case do.CancelTimer(timer):
                known.timers.pop(timer, None)
            case do.Warn(text):
                known.warn(text)
            case do.Finish():
                self.finish = command

    def _start_group(self, command: do.StartGroup) -> None:
        known = self._known
        known.accounts.begin(command.generation)
        known.book.begin(command.generation, command.world_size, command.base)
        known.returned.clear()
        known.effects.append(ShowGroup(command.generation, command.world_size))
        if not known.attempts.start(command):
            known.queue.append(ev.Capacity(known.slots()))
            known.queue.append(not_started(command.generation))

    def _gather(self, command: do.Gather) -> None:
        known = self._known
        lost_with = known.shards.lost_with(command)
        if lost_with is not None:
            known.queue.append(ev.StagedLost(command.id, f"{lost_with} was lost before it was in storage"))
            return
        manifest = self._manifest(command)
        try:
            known.shards.gather(command, manifest)
        except StorageError as error:  # the ranks' files do not go together
            known.queue.append(ev.CommitFailed(command.generation, command.index, str(error)))

    def _commit(self, command: do.Commit) -> None:
        known = self._known
        if known.site.is_remote:
            known.effects.append(Commit(known.shards.gathered(command.generation, command.index), ()))
        else:
            known.effects.append(Commit(self._manifest(command), known.shards.shards(command)))

    def _manifest(self, command: do.Commit | do.Gather) -> Manifest:
        """As far as it is known before the files are put together."""
        known = self._known
        metrics = known.book.metrics_of(command.generation, command.index)
        arguments = known.arguments.pop((command.generation, command.index), None)
        where = (command.id, command.generation, command.index, command.report, command.world_size)
        return Manifest(FORMAT, *where, known.now.wall, metrics, [], arguments)

    def _validate(self, id: str) -> None:
        known = self._known
        if known.plan.validation is None:
            known.queue.append(ev.Validated(id, ValidationStatus.NONE))
            return
        arguments = known.past.validations.get(id) or {}
        payload, timeout_s = known.plan.validation(id, arguments)
        known.outbox.run_task(id, payload, timeout_s)
