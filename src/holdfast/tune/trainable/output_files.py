"""``RunConfig(log_to_file=...)``: what a trial prints, also in files of its directory."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from holdfast.worker.session import current

LogToFile = bool | str | tuple[str, str]


def with_output_files(entry: Callable[[dict[str, Any]], None], log_to_file: LogToFile) -> Any:
    """The entry of a trial, with its output in the named files: one for both streams, or one for each."""
    if isinstance(log_to_file, bool):
        return _WithOutputFiles(entry, "stdout", "stderr") if log_to_file else entry
    out, err = (log_to_file, log_to_file) if isinstance(log_to_file, str) else log_to_file
    return _WithOutputFiles(entry, out, err)


class _WithOutputFiles:
    def __init__(self, entry: Callable[[dict[str, Any]], None], out: str, err: str) -> None:
        self.entry, self.out, self.err = entry, out, err

    def __call__(self, config: dict[str, Any]) -> None:
        directory = current().run_dir
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(open(os.path.join(directory, self.out), "a", buffering=1))
            same = self.out == self.err
            err = out if same else stack.enter_context(open(os.path.join(directory, self.err), "a", buffering=1))
            tees = {id(sys.stdout): _Tee(sys.stdout, out), id(sys.stderr): _Tee(sys.stderr, err)}
            stack.enter_context(contextlib.redirect_stdout(tees[id(sys.stdout)]))
            stack.enter_context(contextlib.redirect_stderr(tees[id(sys.stderr)]))
            for handler in logging.root.handlers:  # a handler keeps the stream that it was made with
                if isinstance(handler, logging.StreamHandler) and id(handler.stream) in tees:
                    stack.callback(handler.setStream, handler.stream)
                    handler.setStream(tees[id(handler.stream)])
            self.entry(config)


class _Tee:
    """A stream whose text is also written to a file."""

    def __init__(self, stream: TextIO, file: TextIO) -> None:
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
