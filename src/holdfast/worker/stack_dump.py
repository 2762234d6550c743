"""Where a worker's threads are in their code, written by the worker itself on a signal.

It is written in C, in the signal's handler: also while the interpreter is held by other code, or inside a collective.
"""

from __future__ import annotations

import faulthandler
import signal

# No user's code has this one: the usual two stay free for schedulers and scripts.
SIGNAL: int = signal.SIGRTMIN + 8 if hasattr(signal, "SIGRTMIN") else getattr(signal, "SIGINFO", signal.SIGUSR2)


def arm(fd: int) -> None:
    """From now on the signal makes the process write the stacks of all its threads there."""
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)
