"""Logs for pages: the end of a log, new lines, lines that contain a text, and the stacks of a hang."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from holdfast.runs.stored_run import StoredRun
from holdfast.web import wording

_LINES = 1_000  # shown at first
_MOST_NEW = 1 << 20  # bytes at a time
_MATCHES = 1_000
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def log_end(stored: StoredRun, attempt: int, rank: int) -> dict[str, Any]:
    size = stored.log_size(attempt, rank)
    found = [text.decode(errors="replace") for text in islice(stored.log_backwards(attempt, rank), _LINES + 1)]
    is_all = len(found) <= _LINES
    lines = [wording.line(text) for text in reversed(found)]
    if lines and not lines[-1]:
        lines.pop()
    return {"lines": lines[-_LINES:], "next": size, "is_all": is_all}


def log_since(stored: StoredRun, attempt: int, rank: int, start: int) -> dict[str, Any]:
    """Whole lines from that byte on."""
    data = b""
    for piece in stored.log(attempt, rank, start):
        data += piece
        if len(data) > _MOST_NEW:
            break
    whole, newline, _ = data.rpartition(b"\n")
    lines = [wording.line(text.decode(errors="replace")) for text in whole.split(b"\n")] if newline else []
    return {"lines": lines, "next": start + len(whole) + len(newline)}


def log_matches(stored: StoredRun, attempt: int, rank: int, text: str) -> dict[str, Any]:
    """The last lines that contain the text, ignoring case, each with its number."""
    wanted = text.casefold()
    found: deque[tuple[int, str]] = deque(maxlen=_MATCHES)
    count, rest = 0, b""
    for piece in stored.log(attempt, rank, 0):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            count += 1
            shown = wording.line(line.decode(errors="replace"))
            if wanted in shown.casefold():
                found.append((count, shown))
    last = wording.line(rest.decode(errors="replace"))
    if last and wanted in last.casefold():
        found.append((count + 1, last))
    return {"matches": [[number, line] for number, line in found], "is_all": len(found) < _MATCHES}


def stack_columns(stacks: Mapping[int, str]) -> list[dict[str, Any]]:
    """For each different stack, the ranks that have it. The training thread comes first, then the others."""
    columns: dict[str, tuple[list[int], str]] = {}
    for rank, text in sorted(stacks.items()):
        threads = [part for part in wording.lines(text).split("\n\n") if part.strip()]
        threads.sort(key=lambda part: not part.startswith("Current thread"))
        whole = "\n\n".join(threads)
        columns.setdefault(_ADDRESS.sub("", whole), ([], whole))[0].append(rank)
    return [{"ranks": ranks, "text": text} for ranks, text in columns.values()]
