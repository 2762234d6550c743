"""The zygote: a process that has imported what workers need and forks them in milliseconds. It never trains.

It runs one thread, and nothing in it may start another or use CUDA: a forked child of such a process can hang. It is
the parent of the workers, so it also sees their end first. It outlives neither the agent nor its lease. Slow imports
are not done here, where they would delay everything, but in a successor that is forked for them. Modules that the
script has imported are imported here too, unless that starts threads.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import types
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from holdfast.node.fork_safety import is_safe_to_fork
from holdfast.node.node_lease import NodeLease
from holdfast.platform import open_files, process_control
from holdfast.wire.zygote_messages import (
    FROM_ZYGOTE,
    TO_ZYGOTE,
    Exited,
    Fork,
    Forked,
    NotForked,
    Preload,
    ProcessPaused,
    Warm,
)
from holdfast.worker import training_process as worker

_GONE_WITHIN_S = 0.5
_LOOK_EVERY_S = 1.0  # at the lease
_KEPT = (signal.SIGTERM,)
END = signal.SIGCONT  # the parent has exited; the one signal that also wakes a stopped zygote
serving = False  # this process is a zygote, or a worker that one has forked
_inherited: list[int] = []  # the descriptors that this process was started with
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Fork | Preload] = msgspec.msgpack.Decoder(TO_ZYGOTE)
answers: msgspec.msgpack.Decoder[Forked | NotForked | Exited | ProcessPaused | Warm] = msgspec.msgpack.Decoder(
    FROM_ZYGOTE
)


def serve(
    control: socket.socket, modules: Sequence[str] = (), lease: NodeLease | None = None, imported: Sequence[str] = ()
) -> NoReturn:
    """Import the modules, and those that the script has imported; then fork on request and report exits, until the
    agent has exited or its lease has expired."""
    global serving
    serving = True
    zygote = _Zygote(control, lease)
    try:
        zygote.warm_up(modules)
        if imported:
            zygote.import_as_script(imported)
        zygote.loop()
    finally:
        zygote.end_children()
        os._exit(0)


class _Zygote:
    def __init__(self, control: socket.socket, lease: NodeLease | None) -> None:
        self._control, self._lease = control, lease
        self._pid, self._parent = os.getpid(), os.getppid()
        self._children: dict[int, bool] = {}  # whether each adopts the orphans of its own children
        self._successors: set[int] = set()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a notice that the machine will be removed is for the agent
        signal.signal(signal.SIGHUP, lambda *_: self._leave())
        signal.signal(END, lambda *_: self._leave_if_alone())
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        process_control.adopt_orphans()
        process_control.set_name("hf-zygote")
        sys.modules["__main__"] = types.ModuleType("__main__")

    def loop(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while self._lease is None or not self._lease.is_over:
            for fd, _ in poll.poll(self._pause_ms()):
                if fd == self._wake:
                    self._drain_wake()
                    self._reap()
                elif not self._serve_request():
                    return

    def _pause_ms(self) -> float | None:
        return None if self._lease is None else 1000.0 * min(self._lease.left_s, _LOOK_EVERY_S) + 1.0

    def _serve_request(self) -> bool:
        data, fds, flags, _ = socket.recv_fds(self._control, 1 << 16, 4)
        if not data:
            return False
        request = _decoder.decode(data)
        if flags & socket.MSG_CTRUNC:  # the rest was more than this process may have open
            self._refuse(request, fds, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        elif isinstance(request, Preload):
            self._fork_successor(request, fds[0])
        else:
            self._fork(request, fds)
        return True

    def warm_up(self, modules: Sequence[str]) -> None:
        for name in modules:
            try:
                importlib.import_module(name)
            except (Exception, SystemExit) as error:
                print(f"holdfast: could not preload {name!r}: {error!r}", file=sys.stderr, flush=True)
        process_control.forget_finalizers()
        gc.collect()
        gc.freeze()  # forked children then do not touch, and so do not copy, existing objects
        if modules:
            self._say(Warm())

    def import_as_script(self, modules: Sequence[str]) -> None:
        """A module that starts threads could hang every worker. If one did, this process starts again without these
        modules."""
        for name in modules:
            with contextlib.suppress(Exception, SystemExit):  # the process that needs the module will get the error
                importlib.import_module(name)
        if not is_safe_to_fork():
            for fd in _inherited:
                os.set_inheritable(fd, True)
            os.execv(sys.executable, [sys.executable, "-m", "holdfast.node.zygote", *sys.argv[1:4]])
        process_control.forget_finalizers()
        gc.collect()
        gc.freeze()

    def _fork_successor(self, request: Preload, control: int) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            print(f"holdfast: {error}", file=sys.stderr, flush=True)
            os.close(control)  # which tells the agent
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                process_control.die_with_parent(parent, END)
                os.setsid()
                self._control.close()
                serve(socket.socket(fileno=control), request.modules, self._lease)
            finally:
                os._exit(1)
        os.close(control)
        self._successors.add(pid)

    def _fork(self, request: Fork, fds: list[int]) -> None:
        channel, output, payload, stacks = fds
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT)  # a signal that arrives before the child is ready is not lost
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT)
            self._refuse(request, fds, error)
            return
        if pid == 0:
            code = 1
            try:
                self._become_worker(parent, output)
                if request.adopts:
                    process_control.adopt_orphans()
                code = worker.run(channel, payload, stacks)
            finally:
                worker.leave(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT)
        for fd in fds:
            os.close(fd)
        self._children[pid] = request.adopts
        self._say(Forked(request.token, pid))

    def _refuse(self, request: Fork | Preload, fds: list[int], error: OSError) -> None:
        """At a limit on processes or files only this worker fails; the others continue."""
        if isinstance(request, Fork) and len(fds) > 1:
            tell_not_started(fds[1], error)
        for fd in fds:
            os.close(fd)
        if isinstance(request, Fork):
            self._say(NotForked(request.token))

    def _become_worker(self, parent: int, output: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(END, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT)
        process_control.die_with_parent(parent)
        os.setsid()
        os.close(self._wake)
        self._control.close()
        process_control.set_name("hf-worker")
        process_control.tie_children()
        gc.enable()
        capture_output(output)

    def _reap(self) -> None:
        """Report each child that exited or was stopped. The process group of an exited child is killed with it."""
        while True:
            flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
            try:
                seen = os.waitid(os.P_ALL, 0, flags)
            except ChildProcessError:
                return
            if seen is None:
                return
            pid = seen.si_pid
            if seen.si_code in (os.CLD_STOPPED, os.CLD_TRAPPED, os.CLD_CONTINUED):
                os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
                if pid in self._children:
                    self._say(ProcessPaused(pid, seen.si_code != os.CLD_CONTINUED))
                continue
            if pid in self._children:
                process_control.kill_group(pid)  # before it is reaped, so its pid cannot belong to another process yet
            _, status = os.waitpid(pid, 0)
            known = self._children.pop(pid, None) is not None
            self._successors.discard(pid)
            if all(self._children.values()):
                self._kill_adopted()
            if known:
                self._say(Exited(pid, status))

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass

    def _say(self, message: Forked | NotForked | Exited | ProcessPaused | Warm) -> None:
        try:
            self._control.send(_encoder.encode(message))
        except OSError:
            pass  # the agent has exited; the loop ends at its next turn

    def _kill_adopted(self) -> None:
        """Leftovers of workers in other process groups are killed when no worker is left to which they may belong."""
        for pid in process_control.children():
            if pid not in self._successors and pid not in self._children:
                process_control.kill_group(pid)

    def _leave_if_alone(self) -> None:
        if os.getpid() == self._pid and os.getppid() != self._parent:
            self._leave()

    def _leave(self) -> None:
        """A signal asks this process to exit, most likely because its parent has exited."""
        if os.getpid() == self._pid:  # otherwise this is a fork that has not become a worker yet
            self.end_children()
        os._exit(0)

    def end_children(self) -> None:
        """Kill all descendants. Children of killed processes become our children, until none is left."""
        for pid in self._children:
            process_control.kill_group(pid)
        deadline = time.monotonic() + _GONE_WITHIN_S
        while (left := process_control.children()) and time.monotonic() < deadline:
            for pid in left:
                process_control.kill_group(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)


def tell_not_started(output: int, error: OSError) -> None:
    """Write the error to the output of the worker that could not start: a person looks for it there."""
    os.write(output, f"holdfast: {not_started(error)}\n".encode())


def not_started(error: OSError) -> str:
    remedy = open_files.remedy(error)
    return f"no process could be started for this worker: {error}{'. ' if remedy else ''}{remedy}"


def capture_output(fd: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # standard input belongs to the script, not to the children of its workers
    if nothing > 0:
        os.close(nothing)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    if fd > 2:
        os.close(fd)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stdin = open(os.devnull)


def main() -> None:
    """Started as a separate process: ``python -m holdfast.node.zygote PARENT FD[,FD,FD] MODULE,... MODULE,...``. The
    first descriptor is the control socket, the others are the lease; the last modules are those of the script."""
    control, *lease = (int(fd) for fd in sys.argv[2].split(","))
    for fd in (control, *lease):
        os.set_inheritable(fd, False)  # the code of a worker does not use them
    process_control.die_with_parent(int(sys.argv[1]), END)
    _inherited[:] = [control, *lease]
    modules, imported = ([name for name in given.split(",") if name] for given in (*sys.argv[3:5], "")[:2])
    serve(socket.socket(fileno=control), modules, NodeLease(lease) if lease else None, imported)


if __name__ == "__main__":
    # Imported again under its own name, so that there is one copy of the module for pickles and globals.
    from holdfast.node.zygote import main as main_

    main_()
