"""How worker processes are started: forked from the zygote, or as fresh interpreters where forking is not safe. Both
ways send the same messages on a socket that the agent watches: Forked (or NotForked), Exited and ProcessPaused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from holdfast.node import zygote
from holdfast.node.node_lease import NodeLease
from holdfast.platform import process_control
from holdfast.wire.channel import received
from holdfast.wire.zygote_messages import Exited, Fork, Forked, NotForked, Preload, ProcessPaused, Warm

_GONE_WITHIN_S = 0.5
_encoder = msgspec.msgpack.Encoder()
Fds = tuple[int, int, int, int]  # a worker's channel, its output, the payload, where it writes its stacks


class LauncherLostError(Exception):
    """The zygote has exited; the agent cannot continue."""


class Launcher(Protocol):
    socket: socket.socket
    shared: bool  # shared by runs: remove a worker's leftovers when it exits, not with the last worker

    def launch(self, token: int, fds: Fds, task: bool = False) -> None: ...
    def warmed(self, modules: Sequence[str]) -> Launcher | None: ...
    def events(self) -> Iterator[Forked | NotForked | Exited | ProcessPaused | Warm]: ...
    def close(self) -> None: ...


class ZygoteLauncher:
    """Talks to a zygote that exists already, or starts one."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self.socket = control
        self.shared = False
        self._process = process
        control.setblocking(False)

    @classmethod
    def start(
        cls, modules: Sequence[str], lease: NodeLease | None = None, imported: Sequence[str] = ()
    ) -> ZygoteLauncher:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fds = [theirs.fileno(), *(lease.fds if lease is not None else ())]
            told = [str(os.getpid()), ",".join(map(str, fds)), ",".join(modules), ",".join(imported)]
            command = [sys.executable, "-m", "holdfast.node.zygote", *told]
            process = subprocess.Popen(command, pass_fds=fds, start_new_session=True)
        return cls(ours, process)

    def launch(self, token: int, fds: Fds, task: bool = False) -> None:
        socket.send_fds(self.socket, [_encoder.encode(Fork(token, self.shared))], fds)

    def warmed(self, modules: Sequence[str]) -> Launcher | None:
        """A launcher whose zygote imports these, and says ``Warm`` when it has; this one continues meanwhile."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.socket, [_encoder.encode(Preload(list(modules)))], [theirs.fileno()])
        successor = ZygoteLauncher(ours)
        successor.shared = self.shared
        return successor

    def events(self) -> Iterator[Forked | NotForked | Exited | ProcessPaused | Warm]:
        while True:
            data = received(self.socket, 1 << 16)
            if data is None:
                return
            if not data:
                raise LauncherLostError("the zygote has exited")
            yield zygote.answers.decode(data)

    def close(self) -> None:
        self.socket.close()
        if self._process is None:
            return
        try:
            self._process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:  # for example, it is importing
            self._process.kill()
            self._process.wait()


class SpawnLauncher:
    """Each worker is a fresh interpreter. This is slower, and the only safe way on macOS."""

    def __init__(self) -> None:
        self.socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.shared = False
        self.socket.setblocking(False)

    def say(self, event: Forked | NotForked | Exited | ProcessPaused) -> None:
        with contextlib.suppress(OSError):  # the agent closed down meanwhile
            self._theirs.send(_encoder.encode(event))

    def launch(self, token: int, fds: Fds, task: bool = False) -> None:
        channel, output, payload, stacks = fds
        inherited = (channel, payload, stacks)
        command = [sys.executable, "-m", "holdfast.node.spawned", str(os.getpid()), *map(str, inherited)]
        try:
            process = subprocess.Popen(
                command,
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:  # at a limit on processes, say
            zygote.tell_not_started(output, error)
            self.say(NotForked(token))
            return
        self.say(Forked(token, process.pid))
        threading.Thread(target=self._await_end, args=(process,), daemon=True).start()

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        if process_control.LINUX:
            self._tell_pauses(process.pid)
            process_control.kill_group(process.pid)  # before it is reaped: no other process has its pid yet
        code = process.wait()
        status = -code if code < 0 else code << 8
        self.say(Exited(process.pid, status))

    def _tell_pauses(self, pid: int) -> None:
        """Wait until the process has exited."""
        while True:
            seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOWAIT)
            if seen is None or seen.si_code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
                return
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
            self.say(ProcessPaused(pid, seen.si_code == os.CLD_STOPPED))

    def warmed(self, modules: Sequence[str]) -> Launcher | None:
        """Nothing to warm: no two workers share an interpreter."""
        return None

    def events(self) -> Iterator[Forked | NotForked | Exited | ProcessPaused | Warm]:
        while True:
            try:
                yield zygote.answers.decode(self.socket.recv(1 << 16))
            except BlockingIOError:
                return

    def close(self) -> None:
        self.socket.close()
        self._theirs.close()
