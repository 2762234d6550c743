"""Rehearse failures: run a script with and without faults, compare the results, and say what to fix.

Each run has its own storage, so your runs are not touched. Options come before SCRIPT.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from holdfast.cli import output
from holdfast.drill import faults
from holdfast.drill.faults import KINDS, Address

EXIT_CODES = (
    "Exit codes: 0 the script survived every fault with the same results; 1 the drill found a problem; 2 the drill "
    "could not run; 128 + N stopped by signal N."
)
_OPTIONS = ("--fault", "--only", "--seed", "--timeout", "--keep", "--html", "--json", "--list")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="list the faults and exit")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed for the steps, ranks and points that you do not choose"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME[@rank=R,step=S,point=P,seconds=T]",
        help="run only this fault; repeat the option for more",
    )
    parser.add_argument("--only", metavar="NAMES", help="run only these faults, separated by commas")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="time limit of each run")
    parser.add_argument("--keep", metavar="DIR", help="keep the runs, their logs and storage in this directory")
    parser.add_argument("--html", metavar="FILE", help="write a report with plots to this file")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a script that calls fit() of a trainer")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list(arguments.json)
    from holdfast.drill import html, table
    from holdfast.drill.as_json import as_json
    from holdfast.drill.rehearsal import Rehearsal

    if arguments.script is None:
        raise ValueError(
            "no script given. Use: holdfast drill SCRIPT [ARGUMENTS], or holdfast drill --list to see the faults."
        )
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
    signal.signal(signal.SIGTERM, _end)  # a cancelled job: stop the running script and clean up
    report = rehearsal.run()
    if arguments.html is not None:
        Path(arguments.html).write_text(html.page(report))
    if arguments.json:
        output.print_json(as_json(report))
    else:
        print(table.text(report))
    return 0 if report.passed else 1


def _check(arguments: argparse.Namespace) -> None:
    """Checked before the first run, not after the last."""
    behind = next((one for one in arguments.args if one.partition("=")[0] in _OPTIONS), None)
    if behind is not None:
        output.note(
            f"holdfast: {behind} comes after the script, so the script gets it. If you mean the drill, write: "
            f"holdfast drill {behind} ... {arguments.script}"
        )
    if arguments.timeout is not None and not arguments.timeout > 0:
        raise ValueError(f"--timeout {arguments.timeout:g}: must be greater than 0")
    if arguments.html is not None:
        place = Path(arguments.html).resolve().parent
        if Path(arguments.html).is_dir() or not os.access(place, os.W_OK):
            raise ValueError(f"--html {arguments.html}: cannot be written. Choose a file in an existing directory.")


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
