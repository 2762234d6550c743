"""A quick check whether the machine is fit for training. On a good machine it takes well under a second."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

_WITHIN_S = 20.0  # per check: long enough that a busy disk does not count as one that hangs
_BURST = 8 << 20
_BURST_DIGEST = "2daeb1f36095b44b318410b3f4e8b5d989dcc7bb023d1426c492dab0a3053e74"
_MEMORY = 64 << 20
_FILE = 1 << 20
_LEAST_FREE = 64 << 20


def findings(scratch: Path) -> list[str]:
    """The problem, in words; empty if there is none."""
    checks: dict[str, Callable[[], None]] = {
        "processor": _compute,
        "memory": _fill_memory,
        f"disk at {scratch}": lambda: _write_and_read(scratch),
        f"disk at {tempfile.gettempdir()}": lambda: _write_and_read(Path(tempfile.gettempdir())),
    }
    if os.path.isdir("/dev/shm"):
        checks["shared memory at /dev/shm"] = _share_memory
    started = [_Check(name, check) for name, check in checks.items()]
    return [finding for check in started if (finding := check.outcome()) is not None]


class _Check:
    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name, self._work = name, work
        self._wrong: str | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-probe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._wrong = f"{self._name}: {error or type(error).__name__}"

    def outcome(self) -> str | None:
        self._thread.join(_WITHIN_S)
        if self._thread.is_alive():
            return f"{self._name}: no answer within {_WITHIN_S:g} s"
        return self._wrong


def _compute() -> None:
    if hashlib.sha256(bytes(_BURST)).hexdigest() != _BURST_DIGEST:
        raise ArithmeticError("a computation gave a wrong result")


def _fill_memory() -> None:
    with mmap.mmap(-1, _MEMORY) as memory:
        _stamp_and_check(memory)


def _share_memory() -> None:
    _check_space(Path("/dev/shm"))
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(_FILE)
        with mmap.mmap(file.fileno(), _FILE) as memory:
            _stamp_and_check(memory)


def _stamp_and_check(memory: mmap.mmap) -> None:
    """Touch each page, and check that it holds what was written."""
    places = range(0, len(memory) - 8, mmap.PAGESIZE)
    for place in places:
        memory[place : place + 8] = place.to_bytes(8, "little")
    if any(int.from_bytes(memory[place : place + 8], "little") != place for place in places):
        raise ArithmeticError("the data read differs from the data written")


def _write_and_read(directory: Path) -> None:
    made = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        _check_space(directory)
        data = os.urandom(_FILE)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            if file.read() != data:
                raise OSError("the data read differs from the data written")
    finally:
        if made:
            with contextlib.suppress(OSError):  # another process uses it meanwhile
                directory.rmdir()


def _check_space(directory: Path) -> None:
    there = os.statvfs(directory)
    if there.f_bavail * there.f_frsize < _LEAST_FREE:
        raise OSError(f"only {there.f_bavail * there.f_frsize >> 20} MiB are free")
    if there.f_files and not there.f_favail:
        raise OSError("no inodes are free")
