"""Print the output of a run's workers, by default of the latest attempt. With several ranks, lines are prefixed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from holdfast.cli import experiment_views, output, paths
from holdfast.runs.stored_run import StoredRun
from holdfast.ui.display_picture import clean

_POLL_S = 0.2
_REMOTE_POLL_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument("--rank", type=int, metavar="N", help="only the log of this rank (default: all)")
    parser.add_argument("--attempt", type=int, metavar="N", help="logs of this attempt (default: the latest)")
    parser.add_argument(
        "--follow", action="store_true", help="keep printing new lines and new attempts until the run ends"
    )


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    experiment_views.refuse(stored, "logs")
    poll_s = stored.location.pause_s(_POLL_S, _REMOTE_POLL_S)
    is_driven = arguments.follow and stored.driver() is not None
    _check(stored, arguments, is_driven)
    printer = _Printer(stored, arguments)
    attempt = arguments.attempt or _latest(stored)
    while is_driven:
        if attempt:
            printer.print_new(attempt, final=False)
        if arguments.attempt and _latest(stored) > arguments.attempt:
            break
        time.sleep(poll_s)
        is_driven = stored.driver() is not None
        if not arguments.attempt:
            # An attempt has ended when the next one has started: the rest of its output is there by now.
            latest = _latest(stored)
            for over in stored.attempts():
                if attempt <= over < latest:
                    printer.print_new(over, final=True)
            attempt = max(attempt, latest)
    if attempt:
        printer.print_new(attempt, final=True)
    return 0


def _check(stored: StoredRun, arguments: argparse.Namespace, is_driven: bool) -> None:
    attempts = stored.attempts()
    attempt = arguments.attempt
    if attempt is not None and attempt not in attempts:
        raise ValueError(f"the run has no logs of attempt {attempt}. It has: {_listed(attempts)}.")
    if is_driven:
        return
    if not attempts:
        output.note(f"{stored.location} has no worker logs: no attempt was started, or num_workers=0 was used")
        return
    ranks = stored.ranks(attempt or attempts[-1])
    if arguments.rank is not None and arguments.rank not in ranks:
        raise ValueError(
            f"attempt {attempt or attempts[-1]} has no log of rank {arguments.rank}. It has: {_listed(ranks)}."
        )


class _Printer:
    """Prints the whole lines that were added to the logs since the last call."""

    def __init__(self, stored: StoredRun, arguments: argparse.Namespace) -> None:
        self._run, self._rank, self._as_json = stored, arguments.rank, arguments.json
        self._is_following = arguments.follow  # then more ranks may come, and the first is prefixed too
        self._is_terminal = sys.stdout.isatty()
        self._done: dict[tuple[int, int], int] = {}

    def print_new(self, attempt: int, final: bool) -> None:
        """``final``: nothing more will come, so that a last line without its end is printed too."""
        ranks = self._run.ranks(attempt)
        for rank in ranks if self._rank is None else [self._rank]:
            is_alone = self._rank is not None or (len(ranks) == 1 and not self._is_following)
            prefix = b"" if is_alone else b"(rank %d) " % rank
            for line in self._new_lines(attempt, rank, final):
                if self._as_json:
                    entry = {"attempt": attempt, "rank": rank, "line": line.decode(errors="replace")}
                    output.print_json_line(entry)
                else:
                    sys.stdout.buffer.write(b"%s%s\n" % (prefix, self._shown(line)))
        sys.stdout.flush()

    def _shown(self, line: bytes) -> bytes:
        """Byte for byte to a file or a pipe. A terminal gets what the display of a run shows: text and colours."""
        if not self._is_terminal:
            return line
        return clean(line.decode(errors="replace"), colour=True).encode(sys.stdout.encoding, "backslashreplace")

    def _new_lines(self, attempt: int, rank: int, final: bool) -> Iterator[bytes]:
        done = self._done.get((attempt, rank), 0)
        rest: list[bytes] = []  # of a line that has not ended yet
        for piece in self._run.log(attempt, rank, done):
            *lines, last = piece.split(b"\n")
            for end in lines:
                line = b"".join([*rest, end])
                rest = []
                done += len(line) + 1
                yield line
            rest.append(last)
        if final and any(rest):
            line = b"".join(rest)
            done += len(line)
            yield line
        self._done[attempt, rank] = done


def _latest(stored: StoredRun) -> int:
    return max(stored.attempts(), default=0)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
