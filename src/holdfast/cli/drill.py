"""Rehearse failures: run a script undisturbed and under faults, compare, and say what to fix.

Each run has storage of its own, so nothing of yours is touched. Exit code 0: every fault was survived and nothing
differs. 1: the drill found a problem. 2: it could not be done.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from holdfast.cli import output
from holdfast.drill import faults
from holdfast.drill.faults import KINDS, Address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="list the faults, and end")
    parser.add_argument("--seed", type=int, default=0, help="of the steps, ranks and points that are not given")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME[@rank=R,step=S,point=P,seconds=T]",
        help="only this fault; may be given several times",
    )
    parser.add_argument("--only", metavar="NAMES", help="only the faults of these names, with commas between")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="that each run may take")
    parser.add_argument("--keep", metavar="DIR", help="leave the runs, their logs and storage there")
    parser.add_argument("--html", metavar="FILE", help="write a report with plots there")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a script that calls fit() of a trainer")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="its own arguments")


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list(arguments.json)
    from holdfast.drill import html, table
    from holdfast.drill.as_json import as_json
    from holdfast.drill.rehearsal import Rehearsal

    if arguments.script is None:
        raise ValueError("name the script: holdfast drill script.py [its arguments]; --list lists the faults")
    _check(arguments)
    rehearsal = Rehearsal(
        arguments.script,
        arguments.args,
        seed=arguments.seed,
        addresses=_addresses(arguments),
        timeout_s=arguments.timeout,
        keep=None if arguments.keep is None else Path(arguments.keep),
        tell=lambda text: output.note(f"drill: {text}"),
    )
    signal.signal(signal.SIGTERM, _end)  # by whoever cancels jobs: what is under way is ended, and cleared up
    report = rehearsal.run()
    if arguments.html is not None:
        Path(arguments.html).write_text(html.page(report))
    if arguments.json:
        output.print_json(as_json(report))
    else:
        print(table.text(report))
    return 0 if report.passed else 1


def _check(arguments: argparse.Namespace) -> None:
    """Told before the first run, not after the last."""
    if arguments.timeout is not None and not arguments.timeout > 0:
        raise ValueError(f"--timeout {arguments.timeout:g}: give more than 0 seconds")
    if arguments.html is not None:
        place = Path(arguments.html).resolve().parent
        if Path(arguments.html).is_dir() or not os.access(place, os.W_OK):
            raise ValueError(f"--html {arguments.html}: cannot be written; give a file in a directory that is there")


def _end(number: int, _frame: object) -> None:
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _addresses(arguments: argparse.Namespace) -> list[Address]:
    given = [faults.parse(text) for text in arguments.fault]
    for name in filter(None, (arguments.only or "").split(",")):
        faults.check(name)
        given.append(Address(name))
    return given


def _list(as_json: bool) -> int:
    if as_json:
        output.print_json({name: kind._asdict() for name, kind in KINDS.items()})
        return 0
    rows = ((name, ", ".join(kind.points), kind.text) for name, kind in KINDS.items())
    output.print_table(("fault", "points", "what happens"), rows)
    return 0
