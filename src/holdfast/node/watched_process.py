"""One worker process as its agent sees it: the channel, the captured output, how far it has come."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from holdfast.platform import open_files, process_control
from holdfast.wire.channel import Unpacker, pack, received, send_some
from holdfast.wire.message import Message
from holdfast.wire.worker_messages import (
    FROM_WORKER,
    Armed,
    Noticed,
    Raised,
    Ready,
    Report,
    Returned,
    StandsBy,
    TookSnapshot,
    WorkerRequest,
)
from holdfast.worker.temporary import new_token

_Said = Report | TookSnapshot | Ready | Returned | Raised | WorkerRequest | Noticed | Armed | StandsBy
_CHUNK = 1 << 18
_TURNS = 16  # how many chunks are read from one worker before the next worker's turn
_LAST_LINES = 30
_LONGEST_LINE = 1 << 16


class WatchedProcess:
    def __init__(self, attempt_number: int, rank: int, token: int, log: Path, task: str = "") -> None:
        self.attempt_number, self.rank, self.token, self.task = attempt_number, rank, token, task
        self.standby = 0  # it waits for a rank: its number
        self.joins = 0  # it takes the place of a lost rank: the number of the replacement
        self.mark = new_token()
        self.pid = 0
        self.forked = False  # and its pid is known; 0 if it runs in this very process
        self.started = self.returned = self.failed = self.ended = False
        self.stopping = self.timed_out = False  # we are ending it: the attempt stops, its time is up
        self.silent = self.mute = False  # it closed its channel, its output
        self.raised: Raised | None = None
        self.status = 0
        self.kill_at: float | None = None
        self.watched_for = 0  # the selector's events on the channel
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._unpacker: Unpacker[_Said] = Unpacker(FROM_WORKER)
        self._partial = b""
        self._unsent = bytearray()
        with contextlib.ExitStack() as opened:
            self._open(log, opened)
            opened.pop_all()

    def _open(self, log: Path, opened: contextlib.ExitStack) -> None:
        self._log = _open_log(log)
        opened.callback(os.close, self._log)
        self.channel, self.their_channel = socket.socketpair()
        opened.callback(self.channel.close)
        opened.callback(self.their_channel.close)
        self.output, self.their_output = os.pipe()
        opened.callback(os.close, self.output)
        opened.callback(os.close, self.their_output)
        self.stacks = process_control.anonymous_file()  # where it writes the stacks of its threads on request
        opened.callback(os.close, self.stacks)
        open_files.check_room(self.stacks)
        self.channel.setblocking(False)
        os.set_blocking(self.output, False)

    def handed_over(self) -> None:
        """Close our copies of the worker's descriptors: they would hide its exit from us."""
        self.their_channel.close()
        os.close(self.their_output)

    def take_rank(self, rank: int, joins: int, log: Path) -> None:
        """A standby becomes this rank: its output belongs to the rank from now on."""
        self.rank, self.joins, self.standby = rank, joins, 0
        os.close(self._log)
        self._log = _open_log(log)

    def send(self, message: Message) -> None:
        self._unsent += pack(message)
        self.flush()

    def flush(self) -> None:
        """Send unsent data, as far as the worker accepts it."""
        if not send_some(self.channel, self._unsent):
            self._unsent.clear()  # the worker has exited

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def messages(self) -> Iterator[_Said]:
        """Messages of the worker that have not been read yet."""
        turns = 0
        while self.ended or turns < _TURNS:
            turns += 1
            data = received(self.channel, _CHUNK)
            if data is None:
                return
            if not data:
                self.silent = True
                return
            yield from self._unpacker.feed(data)
            if len(data) < _CHUNK and not self.ended:
                return  # everything was read; the selector reports more

    def lines(self) -> list[str]:
        """The worker's output since the last call, in whole lines; it is written to the log unchanged."""
        data = b""
        while len(data) < _CHUNK:
            try:
                part = os.read(self.output, _CHUNK)
            except BlockingIOError:
                break
            if not part:
                self.mute = True
                break
            data += part
        if data:
            _write_log(self._log, data)
        whole, _, self._partial = (self._partial + data).rpartition(b"\n")
        if len(self._partial) > _LONGEST_LINE or (self.ended and self._partial):
            whole, self._partial = (whole + b"\n" if whole else b"") + self._partial, b""
        if not whole:
            return []
        lines = whole.decode("utf-8", "replace").split("\n")
        self.last_lines.extend(line for line in lines if line.strip())
        return lines

    def close(self) -> None:
        self.channel.close()
        for fd in (self.output, self._log, self.stacks):
            os.close(fd)


def _open_log(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if open_files.is_at_limit(error):
            raise
        print(f"holdfast: cannot write the log {path}: {error}", file=sys.stderr, flush=True)
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _write_log(fd: int, data: bytes) -> None:
    """A full disk costs log lines, never the run."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        pass
