"""Who drives a run on an object store, as far as that can be known: a note that its writer renews as long as it lives.

The lease does not prevent a write; the journal's claim does that. The lease protects a living driver from being
replaced by mistake, and a new driver from waiting too long for a dead one. No other machine's clock decides anything:
a driver on this machine is judged by its process, any other by its renewals while this process watches.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable

import msgspec

from holdfast.errors import RunInUseError, StorageError
from holdfast.platform import interrupt
from holdfast.store import values
from holdfast.store.interfaces import DriverLease
from holdfast.store.journal import Record
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.fetch import get_if_there
from holdfast.store.remote.holder import Holder, this_process
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.sealed import Damage, seal_struct, unseal_struct

KEY = "lease.json"
_CLOCKS_DIFFER_S = 60.0
_LOOKS = 20
Opened = tuple[RemoteJournal, list[Record], list[Damage]]
_held: set[str] = set()  # the tokens of this process's leases


class _Note(msgspec.Struct, frozen=True):
    holder: Holder
    epoch: int
    expires: float
    renewals: int
    released: bool = False


values.prepare(_Note)


class RemoteLease(DriverLease):
    """Held until ``release()``, or until another driver has started."""

    def __init__(
        self,
        objects: ObjectStore,
        holder: Holder,
        opened: Opened,
        on_lost: Callable[[RunInUseError], None],
        renew_s: float,
        duration_s: float,
        now: Callable[[], float],
    ) -> None:
        self._journal, self._records, self._damage = opened
        self.epoch = self._journal.epoch
        self.token = holder.token
        self._objects = objects.with_patience(renew_s)
        self._holder = holder
        self._on_lost = on_lost
        self._renew_s = renew_s
        self._duration_s = duration_s
        self._now = now
        self._renewals = 0
        self._lost: RunInUseError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)

    @classmethod
    def acquire(
        cls,
        objects: ObjectStore,
        claim: Callable[[str], Opened],
        *,
        on_lost: Callable[[RunInUseError], None],
        renew_s: float = 5.0,
        duration_s: float = 20.0,
        now: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> RemoteLease:
        """Take the run if it has no driver; otherwise raise a RunInUseError that names the driver. ``claim`` gets a new
        token and opens the journal with it. ``on_lost`` is called once, in another thread."""
        _await_turn(objects, duration_s, wait)
        token = uuid.uuid4().hex
        lease = cls(objects, this_process(token, now()), claim(token), on_lost, renew_s, duration_s, now)
        _held.add(token)
        try:
            with contextlib.suppress(StorageError):
                lease._write()
            lease._thread.start()
        except BaseException:
            _held.discard(token)
            raise
        return lease

    def renew(self) -> bool:
        """Renew the lease. False if another driver has started. If the store does not answer, nothing changes."""
        with contextlib.suppress(StorageError):
            lost = self._loss()
            if lost is not None:
                self._over.set()
                self._lost = lost
                self._on_lost(lost)
                return False
            self._write()
        return True

    def _loss(self) -> RunInUseError | None:
        """The loss of the lease, if any. Asks the store."""
        found = unseal_struct(get_if_there(self._objects, KEY), _Note)
        if found is None or found.epoch <= self.epoch:
            return None
        return _taken_over(self._objects, found.holder)

    def cause_of(self, error: Exception) -> Exception:
        """If the driver has lost the run, that explains any other error: its files on this machine belong to the other
        driver."""
        try:
            return self._lost or self._loss() or error
        except StorageError:
            return error

    def open_journal(self) -> Opened:
        """The journal was opened with the claim, which is its last record."""
        return self._journal, [*self._records, self._journal.began], self._damage

    def check(self) -> None:
        """Uses only what this process knows. In any case the journal refuses writes of a driver that has lost the
        run."""
        if self._lost is not None:
            raise self._lost

    @property
    def is_lost(self) -> bool:
        """Asks the store whether another driver has started. True also if the store does not answer."""
        if self._journal.is_out:
            return True
        try:
            return self._loss() is not None
        except StorageError:
            return True

    def release(self) -> None:
        """Allow another driver to start immediately. In a forked child this does nothing."""
        if self._holder.pid != os.getpid():
            return
        _held.discard(self.token)
        lost = self._over.is_set()
        self._over.set()
        self._thread.join(3 * self._renew_s)
        if lost:
            return
        with contextlib.suppress(StorageError):
            found = unseal_struct(get_if_there(self._objects, KEY), _Note)
            if found is None or found.epoch <= self.epoch:
                self._write(released=True)

    def _keep(self) -> None:
        while not self._over.wait(self._renew_s) and self.renew():
            pass

    def _write(self, released: bool = False) -> None:
        self._renewals += 1
        expires = self._now() + self._duration_s
        note = _Note(self._holder, self.epoch, expires, self._renewals, released)
        self._objects.put(KEY, seal_struct(note))


def living_holder(objects: ObjectStore, now: Callable[[], float] = time.time) -> Holder | None:
    """Who drives the run according to its note. Only to show to people."""
    note = unseal_struct(get_if_there(objects, KEY), _Note)
    if note is None or _is_free(note) or (not note.holder.is_alive and now() > note.expires + _CLOCKS_DIFFER_S):
        return None
    return note.holder


def _await_turn(objects: ObjectStore, duration_s: float, wait: Callable[[float], None]) -> None:
    """Return when the run is free: it was released, its driver is dead, or its note did not change for longer than a
    living driver would leave it. RunInUseError if its driver runs on this machine, or renews the note."""
    first = get_if_there(objects, KEY)
    note = unseal_struct(first, _Note)
    for _ in range(_LOOKS):
        if first is None or (note is not None and _is_free(note)):
            return
        if note is not None and note.holder.is_running:
            raise _in_use(objects, note.holder)
        interrupt.wait(wait, duration_s / _LOOKS)
        content = get_if_there(objects, KEY)
        if content != first:
            changed = unseal_struct(content, _Note)
            if content is None or (changed is not None and changed.released):
                return
            raise _in_use(objects, changed.holder if changed else None)


def _is_free(note: _Note) -> bool:
    given_up = note.holder.is_this_process and note.holder.token not in _held  # the store refused the release
    return note.released or note.holder.is_dead or given_up


def _in_use(objects: ObjectStore, holder: Holder | None) -> RunInUseError:
    return RunInUseError(
        f"The run in {objects.url} is being driven by {holder or 'another process'}. Wait until it ends or stop "
        f"it, or give this run another name (RunConfig(name=...))."
    )


def _taken_over(objects: ObjectStore, holder: Holder) -> RunInUseError:
    return RunInUseError(
        f"The run in {objects.url} has been taken over by {holder}: this driver did not renew its lease. The other "
        f"driver continues from storage; committed checkpoints are safe."
    )
