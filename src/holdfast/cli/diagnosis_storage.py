"""Is a storage path ready for runs? The checks write to a separate place there and remove it afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from holdfast.cli.diagnosis import DoctorFinding, bad, good, warning
from holdfast.cli.output import size_text
from holdfast.errors import ObjectExistsError, StorageError
from holdfast.runs.discovery import PATIENCE_S
from holdfast.store.location import Location
from holdfast.store.objects.base import HasClock

Look = Callable[[], Iterator[DoctorFinding]]
_SYNCS, _SLOW_SYNC_S = 9, 0.1
_BLOCK, _BLOCKS, _SLOW_BYTES_A_SECOND = 1 << 20, 32, 20e6
_LITTLE_SPACE = 5 << 30
_SLOW_REQUEST_S = 1.0
_CLOCKS_DIFFER_S = 20.0


def looks(location: Location) -> list[Look]:
    directory = location.directory_here()
    return [partial(_disk, Path(directory)) if directory else partial(_objects, location)]


def _disk(path: Path) -> Iterator[DoctorFinding]:
    """Where nothing is yet, the nearest directory above is looked at: the disk is the same."""
    place = next(parent for parent in (path, *path.parents) if parent.exists())
    shown = str(path) if place == path else f"{path} (does not exist yet; {place} is)"
    if not place.is_dir():
        yield bad("storage", f"{place} is a file", "choose a directory")
        return
    free = shutil.disk_usage(place).free
    try:
        with tempfile.TemporaryDirectory(prefix=".holdfast-doctor-", dir=place) as directory:
            if free < _LITTLE_SPACE:
                yield warning("storage", f"{shown}: {size_text(free)} free", "checkpoints may not fit: free some space")
            else:
                yield good("storage", f"{shown}: writable, {size_text(free)} free")
            yield _locks(Path(directory, "lock"))
            yield _syncs(Path(directory, "small"))
            yield _writes(Path(directory, "large"), free)
    except OSError as error:
        yield bad("storage", f"{shown}: {error.strerror or error}", "make it writable for this user, or choose another")


def _locks(path: Path) -> DoctorFinding:
    try:
        with open(path, "wb") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return bad("locks", f"the file system has none: {error.strerror}", "on NFS, switch its lock service on")
    return good("locks", "the file system has POSIX locks")


def _syncs(path: Path) -> DoctorFinding:
    """Every turn of a driver waits for one."""
    times = []
    with open(path, "wb", buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(b"x" * 512)
            began = time.monotonic()
            os.fsync(file.fileno())
            times.append(time.monotonic() - began)
    median = statistics.median(times)
    text = f"a sync takes {median * 1000:.2g} ms (slowest {max(times) * 1000:.2g} ms)"
    if median > _SLOW_SYNC_S:
        return warning("syncs", text, "commits of checkpoints wait for it: use a local disk")
    return good("syncs", text)


def _writes(path: Path, free: int) -> DoctorFinding:
    blocks = min(_BLOCKS, free // _BLOCK // 2)
    block = os.urandom(_BLOCK)  # which no file system can make small
    began = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(blocks):
            file.write(block)
        os.fsync(file.fileno())
    speed = blocks * _BLOCK / max(1e-6, time.monotonic() - began)
    text = f"{size_text(int(speed))}/s, with a sync at the end"
    if speed < _SLOW_BYTES_A_SECOND:
        return warning("write speed", text, "large checkpoints will take long: use a faster disk")
    return good("write speed", text)


def _objects(location: Location) -> Iterator[DoctorFinding]:
    """With a unique key: it is created, created again (which must fail), read, listed and deleted."""
    objects = location.open(PATIENCE_S)
    key = f".holdfast-doctor-{uuid4().hex}"
    content = uuid4().hex.encode()
    written_at = time.time()
    try:
        times = [_timed(lambda: objects.put(key, content)), _timed(lambda: _same(objects.get(key), content))]
        try:
            times.append(_timed(lambda: objects.list(key)))
            yield _reached(location, times)
            if isinstance(objects, HasClock):
                yield _clock(objects.written_at(key) - written_at)
            safe = objects.creates_safely and _refuses(lambda: objects.create(key, b"another"))
            if safe:
                yield good("creation", "an existing object is not overwritten, so two drivers cannot both start")
            else:
                remedy = (
                    "Holdfast needs a slower method to keep two drivers apart; prefer a store with conditional writes"
                )
                yield warning("creation", "the store has no conditional writes (If-None-Match)", remedy)
        finally:
            with contextlib.suppress(StorageError):
                objects.delete([key])
    except StorageError as error:
        yield bad("storage", str(error), "runs cannot be stored there until this is fixed")
    finally:
        objects.close()


def _reached(location: Location, times: list[float]) -> DoctorFinding:
    spelled = ", ".join(
        f"{name} {took * 1000:.0f} ms" for name, took in zip(("put", "get", "list"), times, strict=True)
    )
    if max(times) > _SLOW_REQUEST_S:
        return warning(
            "storage", f"{location}: {spelled}", "it is slow. Training continues while checkpoints are uploaded"
        )
    return good("storage", f"{location}: {spelled}")


def _clock(ahead_s: float) -> DoctorFinding:
    """Requests are signed with the time, and the lease of a dead driver expires by it. Stores report whole seconds."""
    if abs(ahead_s) <= _CLOCKS_DIFFER_S:
        return good("store's clock", "agrees with this machine's")
    text = f"is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    return warning("store's clock", text, "set this machine's clock right, and let chrony or systemd-timesyncd keep it")


def _refuses(create: Callable[[], None]) -> bool:
    try:
        create()
    except ObjectExistsError:
        return True
    return False


def _same(found: bytes, expected: bytes) -> None:
    if found != expected:
        raise StorageError("the data read differs from the data written")


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
