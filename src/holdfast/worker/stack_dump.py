"""On a signal, a worker writes where its threads are in their code.

The signal's handler does that in C, so it also works while other code holds the interpreter, or inside a collective.
"""

from __future__ import annotations

import faulthandler
import signal

# No user code is known to use this signal: SIGUSR1 and SIGUSR2 stay free for schedulers and scripts.
SIGNAL: int = signal.SIGRTMIN + 8 if hasattr(signal, "SIGRTMIN") else getattr(signal, "SIGINFO", signal.SIGUSR2)


def arm(fd: int) -> None:
    """From now on, on the signal, the process writes the stacks of all its threads there."""
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)
