"""The stacks of a hung attempt. They are saved in full, shown as a summary, and searched for the cause. A rank that
hangs makes its peers wait in a collective, so the cause is the rank that does not wait in one.
"""

from __future__ import annotations

import re

from holdfast.core.run.state import RankStatus, RunState
from holdfast.wire import messages as wire

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x")
_COLLECTIVES = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "barrier",
    "recv",
    "wait",
    "_engine_run_backward",
    "run_backward",
)


class AttemptStacks:
    """The stacks of one attempt, as its nodes report them."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # by rank

    def add(self, message: wire.Stacks, state: RunState) -> bool:
        """Whether the stacks of all ranks have arrived."""
        if message.attempt_number != state.attempt_number or state.attempt is None:
            return False
        self._texts.update(message.texts)
        running = {rank for rank, known in enumerate(state.ranks) if known.status is not RankStatus.RETURNED}
        return running <= self._texts.keys()

    def text(self) -> str:
        return "\n".join(f"rank {rank}\n{text.rstrip()}\n" for rank, text in sorted(self._texts.items()))

    def summary(self) -> list[str]:
        """One line a rank: where its main thread is."""
        return [f"rank {rank}: {_place(text)}" for rank, text in sorted(self._texts.items())]

    def culprit(self) -> int:
        """The only rank that waits for no other rank; -1 if there is no such rank or several."""
        others = [rank for rank, text in self._texts.items() if not _waits(text)]
        return others[0] if len(others) == 1 and len(self._texts) > 1 else -1


def _main_frames(text: str) -> list[re.Match[str]]:
    """The innermost first. The main thread is the last one that is written."""
    blocks: list[list[re.Match[str]]] = [[]]
    for line in text.splitlines():
        if _THREAD.match(line):
            blocks.append([])
        elif (frame := _FRAME.match(line)) is not None:
            blocks[-1].append(frame)
    return next((block for block in reversed(blocks) if block), [])


def _place(text: str) -> str:
    frames = _main_frames(text)
    if not frames:
        return text.strip().partition("\n")[0] or "nothing is known"
    inner = frames[0]
    user = next(
        (frame for frame in frames if "site-packages" not in frame["file"] and "/lib/python" not in frame["file"]),
        inner,
    )
    where = f"{user['file']}:{user['line']} in {user['function']}"
    return where if user is inner else f"{where} ({inner['function']})"


def _waits(text: str) -> bool:
    return any(name in frame["function"] for frame in _main_frames(text)[:6] for name in _COLLECTIVES)
