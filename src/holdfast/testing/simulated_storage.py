"""Storage in memory with one worker thread. Requests are carried out in order, and answers come later.

Manifests survive the driver; requests that were not carried out do not. If storage is remote, files exist before the
manifest, storage can be unavailable or slow for a while, and a separate thread removes files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import Any

from msgspec import Struct

from holdfast.core.run import events as ev
from holdfast.core.run import reconciliation, salvage, step
from holdfast.driver import effects as fx
from holdfast.driver.committed_events import committed, stored_of
from holdfast.driver.logged_reports import log_of, manifest_of
from holdfast.errors import StorageError
from holdfast.runs.past import Past
from holdfast.store.manifests import Manifest, choose, manifest_line

from .clock import Clock
from .schedule import Faults, Workload
from .simulated_attempt import SimulatedAttempt, rank_of

PATIENCE_S = 3.0  # how long storage may be unavailable before a request fails
SCORE = "score"


class Kept(Struct):
    manifest: Manifest
    lineage: tuple[int, ...]  # the attempt that made each report up to this one
    damaged: bool = False


class SimulatedStorage:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        faults: Faults,
        workload: Workload,
        attempts: dict[int, SimulatedAttempt],
        is_remote: bool,
    ) -> None:
        self.manifests: dict[str, Kept] = {}
        self.files: dict[str, set[tuple[int, int]]] = {}  # id -> (attempt, rank) of uploaded parts
        self.quarantined: set[str] = set()
        self.deliver: Callable[[Any], None]
        self.die_here: Callable[[], None]
        self.judge: Any  # of committed checkpoints
        self.epoch = 0
        self._clock, self._rng, self._faults, self._workload, self._attempts = clock, rng, faults, workload, attempts
        self._is_remote = is_remote
        self._busy_until = 0.0
        self._away_until = 0.0

    def driver_died(self) -> None:
        self._busy_until = 0.0

    def carry_out(self, effect: fx.Effect) -> None:
        _CARRY_OUT[type(effect)](self, effect)

    # At a driver's start

    def take_stock(self, past: Past) -> list[ev.Event]:
        """The events that make the journal agree with storage. On a disk, also takes up the staged files of the last
        attempt."""
        self.maybe_damage()
        found = [kept.manifest for kept in sorted(self.manifests.values(), key=_age)]
        counted = [manifest for manifest in found if not self._is_remote or past.counts(manifest)]
        gone = {c.id: "its manifest is gone" for c in past.state.checkpoints if c.id not in self.manifests}
        stored = [stored_of(manifest, SCORE) for manifest in counted]
        stock = reconciliation.reconcile(past.state, past.given_up, stored, gone)
        for id in () if self._is_remote else stock.unwanted:  # otherwise they are collected, because nothing keeps them
            self.die_here()
            self._remove(id)
        for id in stock.damaged:
            self.die_here()
            self._quarantine(id)
        return list(stock.events) if self._is_remote else self._take_up(past, list(stock.events))

    def _take_up(self, past: Past, found: list[ev.Event]) -> list[ev.Event]:
        """The reports of the last attempt that the last driver did not receive."""
        attempt = self._attempts.get(past.last_attempt.attempt_number) if past.last_attempt is not None else None
        if attempt is None:
            return found
        state = functools.reduce(step.replay, found, past.state)
        logs = [attempt.log_of(worker, self._workload) for worker in attempt.workers]
        lost = [
            [i for i in log.staged if attempt.lacks_shard(w, i)] for w, log in zip(attempt.workers, logs, strict=True)
        ]
        known = [log_of(log, gone) for log, gone in zip(logs, lost, strict=True)]
        for command in salvage.committable(state, known, past.given_up, self.manifests):
            self.die_here()
            self.judge.takes_up(command)
            manifest = manifest_of(command, logs, self._clock.now)
            self._faults.count("the next driver took up what the last one had not heard")
            found.append(committed(self._keep(manifest), SCORE, index=-1))
        return found

    # Orders

    def _ask(self, work: Callable[..., None], *args: object) -> None:
        """Queue work for the storage thread."""
        slow = 8.0 if self._rng.random() < 0.1 else 0.2
        if self._faults.hit("storage slow"):
            self._faults.count("storage slow")
            slow = 120.0
        self._busy_until = max(self._busy_until, self._clock.now) + slow * self._rng.random()
        self._clock.at(self._busy_until, work, *args)

    def _answer(self, answer: Any) -> None:
        self.die_here()
        self._clock.after(self._rng.random() * 0.3, self.deliver, answer)

    def put(self, id: str, attempt_number: int, rank: int) -> None:
        self.files.setdefault(id, set()).add((attempt_number, rank))

    def lacks(self, manifest: Manifest) -> list[str]:
        there = self.files.get(manifest.id, set())
        return [entry.path for entry in manifest.files if (manifest.attempt_number, rank_of(entry.path)) not in there]

    def go_away_by_chance(self) -> bool:
        """Whether storage does not answer now."""
        if self._faults.hit("storage away"):
            self._faults.count("storage away")
            self._away_until = self._clock.now + self._rng.random() * 40.0
        return self._clock.now < self._away_until

    def _commit(self, effect: fx.Commit) -> None:
        self._ask(self._commit_remote if self._is_remote else self._commit_now, effect)

    def _commit_now(self, effect: fx.Commit) -> None:
        manifest = effect.manifest
        where = manifest.attempt_number, manifest.index
        there = self.manifests.get(manifest.id)
        other = there is not None and (there.manifest.attempt_number, there.manifest.index) != where
        if other or manifest.id in self.quarantined:
            self.judge.commit_refused(manifest.id, "a checkpoint of that name is there already")
        if self._faults.hit("commit failure"):
            self._faults.count("commit failure")
            self._answer(ev.CommitFailed(*where, "no space is left"))
            return
        if not self._is_remote:
            choose(manifest.id, effect.shards)
        done = self._keep(manifest)
        if self._faults.hit("commit failure after the manifest"):
            self._faults.count("commit failure after the manifest")
            self._answer(ev.CommitFailed(*where, "no space is left"))
        else:
            self._answer(committed(done, SCORE, manifest.index))
        self.maybe_damage()

    def _commit_remote(self, effect: fx.Commit) -> None:
        """The same for remote storage, which may be unreachable, or whose reply may be lost."""
        out_of_reach = ev.UploadFailed(effect.manifest.attempt_number, effect.manifest.index, "storage is away")
        lost_reply = "commit out of reach after the manifest"
        if self._faults.hit("commit out of reach"):
            self._faults.count("commit out of reach")
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        elif self.go_away_by_chance():
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        elif self._faults.hit(lost_reply):
            self._faults.count(lost_reply)
            self._keep(effect.manifest)
            self._clock.after(PATIENCE_S, self._answer, out_of_reach)
        else:
            self._commit_now(effect)

    def _adopt(self, effect: fx.Adopt) -> None:
        self._ask(self._adopt_now, effect.manifest)

    def _adopt_now(self, manifest: Manifest) -> None:
        missing = self.lacks(manifest)
        if missing:
            self._answer(fx.Lacking(manifest, missing))
        elif self.go_away_by_chance():
            self._clock.after(PATIENCE_S, self._answer, StorageError("storage is away"))
        else:
            self.judge.adopts(manifest)
            self._faults.count("the next driver took over what was staged")
            self._answer(fx.AdoptedHere(committed(self._keep(manifest), SCORE, index=-1), manifest))

    def _keep(self, manifest: Manifest) -> Manifest:
        if manifest.id not in self.manifests:
            lineage = self.judge.fates.lineage((manifest.attempt_number, manifest.index))
            manifest = Manifest(**{**_fields(manifest), "epoch": self.epoch})
            self.manifests[manifest.id] = Kept(manifest, lineage)
            self._attempts[manifest.attempt_number].merged.add(manifest.index)
        return self.manifests[manifest.id].manifest

    def maybe_damage(self) -> None:
        if self.manifests and self._faults.hit("damaged checkpoint"):
            self._faults.count("damaged checkpoint")
            self.manifests[self._any_id()].damaged = True
        if self.manifests and self._faults.hit("lost manifest"):
            self._faults.count("lost manifest")
            del self.manifests[self._any_id()]

    def _any_id(self) -> str:
        newest = max(self.manifests, key=lambda id: self.manifests[id].manifest.report)
        return newest if self._rng.random() < 0.6 else self._rng.choice(sorted(self.manifests))

    def _look(self, effect: fx.Verify) -> None:
        self._ask(self._find_manifest if self._is_remote else self._verify, effect.id)

    def _verify(self, id: str) -> None:
        self.maybe_damage()
        kept = self.manifests.get(id)
        if kept is None or kept.damaged:
            self._answer(ev.Damaged(id, "it is gone" if kept is None else "a digest differs"))
        else:
            self._answer(ev.Verified(id))

    def _find_manifest(self, id: str) -> None:
        kept = self.manifests.get(id)
        if kept is None:
            self._answer(ev.Damaged(id, "it is gone"))
        else:
            self._answer(fx.ManifestFound(id, manifest_line(kept.manifest)))

    def _delete(self, effect: fx.Delete) -> None:
        if self._faults.hit("clean-up failure"):
            self._faults.count("clean-up failure")
        elif self._is_remote:
            self._clock.after(self._rng.random() * 8.0, self._remove, effect.id)
        else:
            self._ask(self._remove, effect.id)

    def _remove(self, id: str) -> None:
        self.manifests.pop(id, None)
        self.files.pop(id, None)

    def _quarantine(self, id: str) -> None:
        self.manifests.pop(id, None)
        self.quarantined.add(id)

    def _discard(self, effect: fx.DiscardStaged) -> None:
        if effect.attempt_number in self._attempts and not self._is_remote:  # otherwise their nodes do that
            self._attempts[effect.attempt_number].discarded.add(effect.index)

    def _collect_soon(self, effect: fx.Collect) -> None:
        if self._is_remote:  # otherwise ``take_stock`` did that
            self._ask(self._collect, effect.keep, tuple(self.manifests))

    def _collect(self, keep: Collection[str], there: Iterable[str]) -> None:
        for id in there:
            if id not in keep:
                self._remove(id)


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__struct_fields__}


def _age(kept: Kept) -> tuple[int, int]:
    return kept.manifest.report, kept.manifest.attempt_number


_CARRY_OUT: dict[type[fx.Effect], Callable[[SimulatedStorage, Any], None]] = {
    fx.Commit: SimulatedStorage._commit,
    fx.Verify: SimulatedStorage._look,
    fx.Delete: SimulatedStorage._delete,
    fx.Quarantine: lambda storage, effect: storage._ask(storage._quarantine, effect.id),
    fx.DiscardStaged: SimulatedStorage._discard,
    fx.Collect: SimulatedStorage._collect_soon,
    fx.Adopt: SimulatedStorage._adopt,
}
