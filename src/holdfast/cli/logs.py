"""Print what a run's workers wrote, of the latest attempt unless told otherwise; a line of several is prefixed."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli import output, paths
from holdfast.cli.lease_probe import living_driver
from holdfast.store.layout import RunLayout

HELP = "print the workers' logs"
_POLL_S = 0.2
_ATTEMPT = re.compile(r"attempt-(\d+)")
_RANK = re.compile(r"rank-(\d+)\.log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help="a run's directory, or its name in the default storage path")
    parser.add_argument("--rank", type=int, metavar="N", help="only this worker's (default: all)")
    parser.add_argument("--attempt", type=int, metavar="N", help="of this attempt (default: the latest)")
    parser.add_argument(
        "--follow", action="store_true", help="go on with new lines, and new attempts, until the run ends"
    )


def run(arguments: argparse.Namespace) -> int:
    layout = RunLayout(paths.run_directory(arguments.run_path))
    is_driven = arguments.follow and living_driver(layout) is not None
    _check(layout, arguments, is_driven)
    printer = _Printer(layout, arguments)
    attempt = arguments.attempt or _latest(layout)
    while is_driven:
        if attempt:
            printer.print_new(attempt, final=False)
        if arguments.attempt and _latest(layout) > arguments.attempt:
            break
        time.sleep(_POLL_S)
        is_driven = living_driver(layout) is not None
        if not arguments.attempt:
            # An attempt is over when the next has begun: what is left of it is there by now.
            for over in range(max(attempt, 1), _latest(layout)):
                printer.print_new(over, final=True)
                attempt = over + 1
            attempt = max(attempt, _latest(layout))
    if attempt:
        printer.print_new(attempt, final=True)
    return 0


def _check(layout: RunLayout, arguments: argparse.Namespace, is_driven: bool) -> None:
    attempts = _numbers(layout.logs_dir, _ATTEMPT)
    attempt = arguments.attempt
    if attempt is not None and attempt not in attempts:
        raise ValueError(f"the run has no logs of attempt {attempt}. It has: {_listed(attempts)}.")
    if is_driven:
        return
    if not attempts:
        output.note(f"{layout.root} has no worker logs: no attempt was started, or num_workers=0 was used")
        return
    ranks = _ranks(layout, attempt or attempts[-1])
    if arguments.rank is not None and arguments.rank not in ranks:
        raise ValueError(
            f"attempt {attempt or attempts[-1]} has no log of rank {arguments.rank}. It has: {_listed(ranks)}."
        )


class _Printer:
    """Prints the whole lines that files have beyond what was printed of them before."""

    def __init__(self, layout: RunLayout, arguments: argparse.Namespace) -> None:
        self._layout, self._rank, self._as_json = layout, arguments.rank, arguments.json
        self._is_following = arguments.follow  # then more ranks may come, and the first is prefixed too
        self._done: dict[Path, int] = {}

    def print_new(self, attempt: int, final: bool) -> None:
        """``final``: nothing more will come, so that a last line without its end is printed too."""
        ranks = _ranks(self._layout, attempt)
        for rank in ranks if self._rank is None else [self._rank]:
            is_alone = self._rank is not None or (len(ranks) == 1 and not self._is_following)
            prefix = b"" if is_alone else b"(rank %d) " % rank
            for line in self._new_lines(self._layout.log_file(attempt, rank), final):
                if self._as_json:
                    entry = {"attempt": attempt, "rank": rank, "line": line.decode(errors="replace")}
                    print(json.dumps(entry, ensure_ascii=False))
                else:
                    sys.stdout.buffer.write(b"%s%s\n" % (prefix, line))
        sys.stdout.flush()

    def _new_lines(self, path: Path, final: bool) -> Iterator[bytes]:
        try:
            file = open(path, "rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._done.get(path, 0))
            for line in file:
                if not line.endswith(b"\n") and not final:
                    return
                self._done[path] = self._done.get(path, 0) + len(line)
                yield line.removesuffix(b"\n")


def _latest(layout: RunLayout) -> int:
    return max(_numbers(layout.logs_dir, _ATTEMPT), default=0)


def _ranks(layout: RunLayout, attempt: int) -> list[int]:
    return _numbers(layout.log_file(attempt, 0).parent, _RANK)


def _numbers(directory: Path, pattern: re.Pattern[str]) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(match[1]) for match in map(pattern.fullmatch, (p.name for p in directory.iterdir())) if match)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
