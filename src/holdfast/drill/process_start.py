"""How a drill starts a process: in a new session, and so that the kernel kills it with the drill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import IO

from holdfast.platform import process_control

Mask = set[int | signal.Signals]


@contextlib.contextmanager
def signals_held() -> Iterator[Mask]:
    """An exception from a signal handler while Python forks would be lost. Returns the previous signal mask."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def start(command: Sequence[str], env: Mapping[str, str], output: IO[bytes], mask: Mask) -> subprocess.Popen[bytes]:
    """While signals are held."""
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=partial(_begin, os.getpid(), mask),
    )


def _begin(parent: int, mask: Mask) -> None:
    process_control.die_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
