"""``holdfast COMMAND``: the one place where arguments become a command, and errors one line and an exit code.

0: all is well. 1: something is damaged, cannot be read, or has failed. 2: the command itself was wrong, or the storage
that it names cannot be reached. 128 and the number of a signal: stopped by it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import re
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

import msgspec

import holdfast
from holdfast.errors import HoldfastError, NotARunError, StorageUnavailableError
from holdfast.printable import printable

# Each command is a module of this package, imported with its dependencies only when it is used.
COMMANDS = {
    "run": "run a script on several workers and restart it after failures",
    "ls": "list the runs below a storage path",
    "show": "show a run's state, history, failures and checkpoints",
    "compare": "compare runs or trials: progress, metrics, settings that differ",
    "ui": "show runs and experiments in a browser",
    "report": "write the page of a run to one HTML file",
    "watch": "watch a run live",
    "logs": "print the workers' logs",
    "stop": "stop a run",
    "checkpoints": "list, verify, export or delete the checkpoints of a run",
    "verify": "check that everything stored of a run is intact",
    "doctor": "check whether this machine and a storage path are ready for training",
    "drill": "rehearse failures with your script: kill, hang, break, compare",
    "cluster": "check a Ray cluster",
    "completion": "print a shell's completion script",
}


def main(argv: Sequence[str] | None = None) -> int:
    with _ends_with_its_reader():
        return _main(argv)


@contextlib.contextmanager
def _ends_with_its_reader() -> Iterator[None]:
    """In ``holdfast ... | head`` the process exits silently with ``head``. A program that calls ``main`` must not exit
    like that later, when some connection of its own breaks."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        signal.signal(signal.SIGPIPE, before)


def _main(argv: Sequence[str] | None) -> int:
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name may have characters that the terminal cannot show
    arguments = _parse(list(sys.argv[1:] if argv is None else argv))
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (NotARunError, StorageUnavailableError, ValueError) as error:
        return _complain(error, 2)
    except PermissionError as error:
        return _complain(f"{error.filename} cannot be read: {error.strerror}. Run this as a user who may read it.", 1)
    except HoldfastError as error:
        return _complain(error, 1)
    except msgspec.ValidationError as error:
        return _complain(f"this version of Holdfast cannot read a record of the journal: {error}", 1)
    except OSError as error:
        with open(os.devnull, "w") as nowhere:  # what stdout did not take must not be tried again at the end
            os.dup2(nowhere.fileno(), 1)
        return _complain(error, 1)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        likely = difflib.get_close_matches(wrong[1], re.findall(r"'([^']+)'", wrong[2]), n=1) if wrong else []
        message = re.sub(r"\?\S*", "?...", message)  # a URL's options may be secrets
        super().error(printable(message + "".join(f". Did you mean '{name}'?" for name in likely)))


def parser(known: Collection[str]) -> argparse.ArgumentParser:
    """Lists all commands, and knows the arguments of some."""
    top = _Parser(
        prog="holdfast",
        description="Run scripts that survive failures. Inspect, compare, stop and clean up runs.",
        epilog="Exit codes: 0 success; 1 something is damaged, unreadable or has failed; 2 the command was wrong or "
        "the storage is unreachable; 128 + N stopped by signal N.",
    )
    top.add_argument("--version", action="version", version=f"holdfast {holdfast.__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, help in COMMANDS.items():
        if name in known:
            _add(commands, name, help, _module(name), top.epilog)
        else:
            commands.add_parser(name, help=help)
    return top


def _module(name: str) -> Any:
    return importlib.import_module(f"holdfast.cli.{name}")


def _add(commands: Any, name: str, help: str, module: Any, epilog: str | None) -> None:
    """A command, or one that has others below it."""
    epilog = getattr(module, "EXIT_CODES", epilog)
    command = commands.add_parser(name, help=help, description=module.__doc__, epilog=epilog)
    if hasattr(module, "ACTIONS"):
        actions = command.add_subparsers(metavar="ACTION", required=True)
        for action, below in module.ACTIONS.items():
            _add(actions, action, below.HELP, below, epilog)
        return
    command.add_argument("--json", action="store_true", help="print JSON instead of text")
    module.add_arguments(command)
    command.set_defaults(run=module.run)


def _parse(argv: list[str]) -> argparse.Namespace:
    """argparse takes a list of names for empty if an option comes before it; the names are then in the remainder."""
    command = argv[0] if argv else ""
    top = parser([command])
    arguments, rest = top.parse_known_args(_with_default_action(argv) if command in COMMANDS else argv)
    if rest and (not hasattr(arguments, "ids") or any(word.startswith("-") for word in rest)):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.ids = [*arguments.ids, *rest]
    return arguments


def _with_default_action(argv: list[str]) -> list[str]:
    """``checkpoints RUN`` is short for ``checkpoints list RUN``."""
    module = _module(argv[0])
    default = getattr(module, "DEFAULT_ACTION", None)
    if default is None or (len(argv) > 1 and argv[1] in (*module.ACTIONS, "-h", "--help")):
        return argv
    return [argv[0], default, *argv[1:]]


def _complain(error: object, code: int) -> int:
    print(f"holdfast: error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
    return code
