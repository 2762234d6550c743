"""The seed: a snapshot of the script's process, forked right after its imports, from which zygotes are forked.

A zygote that had to import the framework again would double the time to the first step. The seed costs a fork: it
shares the script's memory, does nothing, and exits with the script. It is only taken while the process is still safe to
fork: no other thread runs, and no framework holds a device. Otherwise the agent starts a fresh zygote. Nodes that join
later, and the script's next fit(), need more imports immediately; a copy of the seed imports them meanwhile and takes
over when it is done.

A notebook has threads, and trains many times while a person waits. There the seed is a separate process, which imports
everything that workers need while the person keeps typing.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing import parent_process
from typing import NoReturn

from holdfast.node import zygote
from holdfast.node.fork_safety import is_safe_to_fork
from holdfast.platform import process_control

_WITHIN_S = 10.0
_IMPORTED_WITHIN_S = 60.0
_GROW, _WARM = b"grow", b"warm"
_seed: Seed | None = None
_inside = False  # this process is a seed, or descends from one


class Seed:
    """The script's end of the connection to its seed."""

    process: subprocess.Popen[bytes] | None = None  # kept as long as the seed
    imported: frozenset[str] = frozenset()  # beyond the imports of the script

    def __init__(self, pid: int, wire: socket.socket, within_s: float = _WITHIN_S) -> None:
        self.pid = pid
        wire.settimeout(within_s)
        atexit.register(wire.close)
        self._owner = os.getpid()
        self._wire = wire
        self._one_at_a_time = threading.Lock()  # answers do not name their request
        self._copy: Seed | None = None
        self._copy_is_warm = False

    @property
    def pids(self) -> set[int]:
        return {self.pid} if self._copy is None else {self.pid, self._copy.pid}

    def grow(self) -> tuple[int, socket.socket] | None:
        """Fork a zygote. Returns its pid and control socket, or None if there is no seed (any more)."""
        with self._one_at_a_time:
            warm = self._copy.grow() if self._copy is not None and self._learn_if_copy_is_warm() else None
            return warm or self._ask(_GROW)

    def warm(self, modules: Sequence[str]) -> None:
        """Let a copy import these modules too, once. This seed continues until the copy is ready."""
        if self.imported.issuperset(modules):
            return
        with self._one_at_a_time:
            found = self._ask(json.dumps(list(modules)).encode()) if self._copy is None else None
            if found is not None:
                self._copy = Seed(*found)

    def _learn_if_copy_is_warm(self) -> bool:
        if self._copy is not None and not self._copy_is_warm and select.select([self._copy._wire], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                self._copy_is_warm = self._copy._wire.recv(64) == _WARM
        return self._copy_is_warm

    def _ask(self, what: bytes) -> tuple[int, socket.socket] | None:
        """Fork a process for that."""
        if os.getpid() != self._owner:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._wire, [what], [theirs.fileno()])
                return int(self._wire.recv(64)), ours
            except (OSError, ValueError):
                self._wire.close()  # it has exited, or is so late that its answer would be mistaken for a later one
                ours.close()
                return None


def planted() -> Seed | None:
    return _seed


def plant(modules: Sequence[str], slow: Sequence[str] = ()) -> None:
    """Take the snapshot once, if a fork is safe here and now, and import the modules in it. In an interactive session,
    where it is not safe, start a separate process, which also imports the slow modules."""
    global _seed
    if _seed is not None or _inside or zygote.serving or not process_control.LINUX or parent_process() is not None:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if is_safe_to_fork():
        _seed = _fork(modules)
    elif hasattr(sys, "ps1"):
        _seed = _start([*modules, *slow])
        _seed.imported = frozenset([*modules, *slow])


def _fork(modules: Sequence[str]) -> Seed:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # else the child would hold a second copy of the buffered output
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            os.setsid()
            _forget_half_imported()
            process_control.forget_exit_functions()
            _live(parent, theirs, modules)
        finally:
            os._exit(0)
    gc.unfreeze()
    theirs.close()
    return Seed(pid, ours)


def _start(modules: Sequence[str]) -> Seed:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "holdfast.node.seed", str(os.getpid()), str(theirs.fileno()), *modules]
    with theirs:
        process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=env, start_new_session=True, stdin=subprocess.DEVNULL
        )
    seed = Seed(process.pid, ours, _IMPORTED_WITHIN_S)
    seed.process = process
    return seed


def _forget_half_imported() -> None:
    """In this process, the imports that led here never return. Code that needs those modules imports them again."""
    specs = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
    half = {name for name, spec in specs.items() if getattr(spec, "_initializing", False)} - {"holdfast"}
    for name in specs:
        if any(name == other or name.startswith(f"{other}.") for other in half):
            del sys.modules[name]
            importlib._bootstrap._module_locks.pop(name, None)  # type: ignore[attr-defined]  # held, for ever


def _live(parent: int, wire: socket.socket, modules: Sequence[str]) -> NoReturn:
    global _inside
    _inside = True
    process_control.set_name("hf-seed")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    process_control.die_with_parent(parent)
    for name in modules:
        importlib.import_module(name)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    _serve(wire)


def _serve(wire: socket.socket) -> NoReturn:
    while True:
        data, fds, _, _ = socket.recv_fds(wire, 1 << 16, 1)
        if not data:
            os._exit(0)
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            wire.close()
            os.setsid()
            process_control.die_with_parent(me, zygote.END if data == _GROW else signal.SIGKILL)
            own = socket.socket(fileno=fds[0])
            zygote.serve(own) if data == _GROW else _warm_up(own, json.loads(data))
        os.close(fds[0])
        wire.send(str(pid).encode())


def _warm_up(wire: socket.socket, modules: Sequence[str]) -> NoReturn:
    process_control.yield_to_others(True)  # it must not slow down processes that are training
    for name in modules:
        with contextlib.suppress(Exception, SystemExit):  # the process that needs the module will get the error
            importlib.import_module(name)
    process_control.yield_to_others(False)
    gc.collect()
    gc.freeze()
    wire.send(_WARM)
    _serve(wire)


def main() -> None:
    """Started as a separate process: ``python -m holdfast.node.seed PARENT FD MODULE...``."""
    parent, wire, *modules = sys.argv[1:]
    os.set_inheritable(int(wire), False)
    _live(int(parent), socket.socket(fileno=int(wire)), modules)


if __name__ == "__main__":
    # Imported again under its own name, so that modules imported below know that they are inside a seed.
    from holdfast.node.seed import main as main_

    main_()
