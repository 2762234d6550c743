"""Reads stored files only if they are regular files, and only up to a plausible size. Where other users can write, a
file of a run may be huge, a FIFO, or a link to a device, which would block or never end. All of these raise an
``OSError``, like any other file that cannot be read. Links to regular files are followed.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

WHOLE = 256 << 20  # bytes of a file that is read as a whole; the largest is a manifest with very many files
LINE = 256 << 20  # bytes of a line, which has all metrics of a report


def open_regular(path: Path) -> io.FileIO:
    """Open a file to read it. Never blocks."""
    _check(os.stat(path), path)  # checked first, because opening a device may have an effect
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _check(os.fstat(file.fileno()), path)
    except BaseException:
        file.close()
        raise
    return file


def read_whole(path: Path, most: int = WHOLE) -> bytes:
    with open_regular(path) as file:
        content = bytearray()
        while piece := file.read(min(1 << 20, most + 1 - len(content))):
            content += piece
            if len(content) > most:
                raise OSError(errno.EFBIG, f"File has more than {most} bytes", str(path))
        return bytes(content)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines with their newlines; the last one may have none."""
    with io.BufferedReader(open_regular(path), 1 << 20) as file:
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise OSError(errno.EFBIG, f"A line has more than {LINE} bytes", str(path))
            yield line


def _check(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
