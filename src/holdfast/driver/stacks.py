"""What the ranks of a hung group were doing: written down in full, shown in brief, and judged for the cause.

A rank that hangs makes its peers wait in a collective. So the cause is the one that does not wait there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

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


def write_stacks(path: Path, stacks: Mapping[int, str]) -> None:
    with contextlib.suppress(OSError):  # they are shown all the same
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(f"rank {rank}\n{text.rstrip()}\n" for rank, text in sorted(stacks.items())))


def summary_of(stacks: Mapping[int, str]) -> list[str]:
    """One line a rank: where its main thread is."""
    return [f"rank {rank}: {_place(text)}" for rank, text in sorted(stacks.items())]


def culprit(stacks: Mapping[int, str]) -> int:
    """The only rank that waits for no other; -1 if that cannot be told."""
    others = [rank for rank, text in stacks.items() if not _waits(text)]
    return others[0] if len(others) == 1 and len(stacks) > 1 else -1


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
