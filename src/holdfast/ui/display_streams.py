"""Streams that a display writes to or takes over. A stream that breaks is dropped: no error of one ever gets out."""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError, AttributeError):
        return False


def is_foreground(stream: TextIO) -> bool:
    """Whether this program may draw on the terminal. A job that was started with ``&`` would draw over the shell's
    prompt."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # not our controlling terminal: no other process draws on it
        return True


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal; 80 by 24 if they are unknown."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return 80, 24
    return columns or 80, rows or 24


class Sink:
    """Writes text to a stream for as long as that works.

    A real file is written past Python's buffer. Bytes left in there after an error would fail again when the
    interpreter exits and change its exit code, and its lock, held by a write that never ends, would hang that exit.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.broken = False
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> None:
        if self.broken or not text:
            return
        data = text.encode(self.encoding, "replace")
        try:
            if type(self.stream) is io.TextIOWrapper:
                self.stream.flush()
                self._write_all(self.stream.fileno(), data)
            else:
                self.stream.write(data.decode(self.encoding))
                self.stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self.broken = True

    @staticmethod
    def _write_all(fd: int, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:  # another program has made the terminal non-blocking
                select.select([], [fd], [])


class Redirect:
    """Stands in for sys.stdout or sys.stderr while a panel is shown, and hands whole lines to the display."""

    def __init__(self, stream: TextIO, show: Callable[[str], None], is_shown: Callable[[], bool]) -> None:
        self._stream = stream
        self._show = show
        self._is_shown = is_shown
        self._partial = ""
        self._lock = threading.RLock()  # a signal handler may print while its thread is printing
        self._pid = os.getpid()

    @classmethod
    def install(cls, show: Callable[[str], None], is_shown: Callable[[], bool]) -> list[Callable[[], None]]:
        """Take over both streams and the logging handlers that write to them; returns what undoes it."""
        undo: list[Callable[[], None]] = []
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            proxy = cls(stream, show, is_shown)
            setattr(sys, name, proxy)
            undo.append(lambda name=name, stream=stream, proxy=proxy: proxy._give_back(name, stream))  # type: ignore[misc]
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(proxy)
                    undo.append(lambda handler=handler, stream=stream: handler.setStream(stream))  # type: ignore[misc]
        return undo

    def _give_back(self, name: str, stream: TextIO) -> None:
        if getattr(sys, name) is self:
            setattr(sys, name, stream)
        with self._lock:
            if self._partial:
                self._show(self._partial)
                self._partial = ""

    def write(self, text: str) -> int:
        if self._is_past():
            return self._stream.write(text)
        with self._lock:
            *lines, partial = (self._partial + text).split("\n")
            self._partial = partial[partial.rfind("\r") :] if "\r" in partial else partial
        for line in lines:
            self._show(line)
        return len(text)

    def _is_past(self) -> bool:
        """Whether a line would not be shown: the display has ended, or this process is a fork, which has none."""
        return not self._is_shown() or os.getpid() != self._pid

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._is_past():
            self._stream.flush()
            return
        with self._lock:
            if self._partial and "\r" not in self._partial:
                partial, self._partial = self._partial, ""
                self._show(partial)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
