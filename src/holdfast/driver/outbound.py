"""Turns each command of the core into orders for nodes and effects for the runtime. Nothing is decided here."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.handover import not_started
from holdfast.core.run.state import ValidationStatus
from holdfast.errors import StorageError
from holdfast.store.manifests import FORMAT, Manifest, overwritten
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import PeersLost

from .driver_state import DriverState
from .effects import Commit, Delete, DiscardStaged, Quarantine, ShowAttempt, ShowBackoff
from .stacks import AttemptStacks
from .startup import Startup


class Outbound:
    def __init__(self, known: DriverState, startup: Startup) -> None:
        self._known, self._startup = known, startup
        self.finish: do.Finish | None = None  # the last command of the core
        self._warned_of_overwriting = False

    def carry_out(self, command: do.Command) -> None:
        known = self._known
        match command:  # the frequent ones first
            case do.SetTimer(timer, after_s):
                known.timers[timer] = known.now.monotonic + after_s
                if timer == timers.BACKOFF:
                    known.effects.append(ShowBackoff(after_s))
            case do.CancelTimer(timer):
                known.timers.pop(timer, None)
            case do.Decide():
                pass  # it has been stepped with the event that led to it
            case do.StartAttempt():
                self._start_attempt(command)
            case do.ReplaceRank(of) | do.StartStandby(of) if not self._lives(of):
                pass  # while this was journalled, the attempt ended: the new process would not be used
            case do.ReplaceRank(attempt_number, rank, number, standby):
                known.attempts.replace(attempt_number, rank, number, standby)
            case do.StartStandby(attempt_number, number, moves):
                if not known.attempts.start_standby(attempt_number, number, moves):
                    known.queue.append(ev.StandbyLost(attempt_number, number, "there is no capacity for it"))
            case do.TellPeersLost(attempt_number, number):
                known.outbox.tell(PeersLost(attempt_number, number))
            case do.RegroupRanks():
                known.accounts.begin(command.attempt_number)
                for rank in command.replaced:
                    known.book.skip(command.attempt_number, rank, command.reports)
                known.regroups.answer(command, known.snapshots.regrouped(command.steps[command.source]))
            case do.AskHandover():
                known.handover.ask(command, known.now.wall)
            case do.DumpStacks(attempt_number):
                known.stacks = AttemptStacks()
                known.outbox.tell(wire.DumpStacks(attempt_number))
            case do.Rest(node, on):
                known.nodes.rest(node, on)
                if self._startup.is_over:
                    known.tell_of_room()
            case do.StopAttempt(attempt_number, graceful):
                if known.attempts.stop(attempt_number, graceful):
                    known.queue.append(ev.AttemptGone(attempt_number))
            case do.Commit():
                self._commit(command)
            case do.Gather():
                self._gather(command)
            case do.Stall(on):
                known.outbox.stall(on)
            case do.Upload(attempt_number, index, id, ranks):
                manifest = known.shards.manifest_of(id)
                if manifest is not None:  # otherwise it could not be gathered, and the core was told
                    known.shards.upload(manifest, ranks)
            case do.Discard(attempt_number, index):
                known.shards.discard(attempt_number, index)
                known.effects.append(DiscardStaged(attempt_number, index, known.plan.spec.num_workers))
            case do.Delete(id):
                known.effects.append(Delete(id))
            case do.Recall(snapshot, world_size):
                known.snapshots.recall(snapshot, world_size)
            case do.Verify(id):
                known.verification.begin(id, known.run)
            case do.Quarantine(id, why):
                known.effects.append(Quarantine(id, why))
            case do.Validate(id):
                self._validate(id)
            case do.Warn(text):
                known.warn(text)
            case do.Finish():
                self.finish = command

    def _lives(self, attempt_number: int) -> bool:
        run = self._known.run
        return run.attempt_number == attempt_number and run.attempt_lives

    def _start_attempt(self, command: do.StartAttempt) -> None:
        known = self._known
        known.accounts.begin(command.attempt_number)
        known.book.begin(command.attempt_number, command.world_size, command.base, known.run.spec.rank_zero_only)
        known.values.clear()
        known.value = None
        before = set(known.attempts.homes.values())
        if known.attempts.start(command, known.snapshots.is_in_place, known.snapshots.taken_by()):
            after = set(known.attempts.homes.values())
            moved = (tuple(sorted(after - before)), tuple(sorted(before - after))) if before and after else ((), ())
            known.effects.append(ShowAttempt(command.attempt_number, command.world_size, *moved))
            known.snapshots.attempt_started(command.snapshot, after)
        else:
            known.queue.append(ev.Capacity(known.slots()))
            known.queue.append(not_started(command.attempt_number))

    def _gather(self, command: do.Gather) -> None:
        known = self._known
        lost_with = known.shards.lost_with(command)
        if lost_with is not None:
            known.queue.append(ev.StagedLost(command.id, f"{lost_with} was lost before it was in storage"))
            return
        self._warn_of_overwriting(command)
        manifest = self._manifest(command)
        try:
            known.shards.gather(command, manifest)
        except StorageError as error:  # the files of the ranks cannot be merged
            known.queue.append(ev.CommitFailed(command.attempt_number, command.index, str(error)))

    def _commit(self, command: do.Commit) -> None:
        known = self._known
        gathered = known.shards.gathered(command.attempt_number, command.index)
        if gathered is not None:
            known.effects.append(Commit(gathered, ()))
        else:
            self._warn_of_overwriting(command)
            known.effects.append(Commit(self._manifest(command), known.shards.shards(command)))

    def _warn_of_overwriting(self, command: do.Commit | do.Gather) -> None:
        """Warn once per driver, because a script that does this does it in every checkpoint."""
        if self._warned_of_overwriting:
            return
        for path, ranks in overwritten(self._known.shards.shards(command)).items():
            self._warned_of_overwriting = True
            self._known.warn(
                f"{command.id}: ranks {', '.join(map(str, ranks))} saved different files under the name {path!r}; only "
                f"rank {ranks[0]}'s is kept. If every rank must keep its own, put the rank into the name: "
                f'f"state-{{train.get_context().get_world_rank()}}.pt". If not, save it on rank 0 only.'
            )
            return

    def _manifest(self, command: do.Commit | do.Gather) -> Manifest:
        """As far as is known before the files are merged."""
        known = self._known
        metrics = known.book.metrics_of(command.attempt_number, command.index)
        arguments = known.shards.arguments(command)
        where = (command.id, command.attempt_number, command.index, command.report, command.world_size)
        return Manifest(FORMAT, *where, known.now.wall, metrics, [], arguments)

    def _validate(self, id: str) -> None:
        if not self._known.validations.start(id):
            self._known.queue.append(ev.Validated(id, ValidationStatus.NONE))
