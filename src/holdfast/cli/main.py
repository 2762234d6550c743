"""``holdfast COMMAND``: the one place where arguments become a command, and errors one line and an exit code.

0: all is well. 1: something is damaged or cannot be read. 2: the command itself was wrong, or the storage that it names
cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import holdfast
from holdfast.cli import checkpoints, drill, logs, ls, show, verify
from holdfast.errors import HoldfastError, NotARunError, StorageUnavailableError

COMMANDS = (ls, show, logs, checkpoints, verify, drill)


def main(argv: Sequence[str] | None = None) -> int:
    """Only for a process of its own: see ``lease_probe``."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # in ``holdfast ... | head`` the reader's end is ours, without a word
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name must not be more than the terminal can show
    parser = _parser()
    arguments = parser.parse_args(argv)
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
    except OSError as error:
        with open(os.devnull, "w") as nowhere:  # what stdout did not take must not be tried again at the end
            os.dup2(nowhere.fileno(), 1)
        return _complain(error, 1)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"\?\S*", "?...", message))  # a URL's options may be secrets


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="holdfast",
        description="Look at runs: what they did, what they left, and whether it is intact. Nothing is changed.",
        epilog="Exit codes: 0 all is well, 1 something is damaged or cannot be read, 2 the command was wrong or "
        "the storage cannot be reached.",
    )
    parser.add_argument("--version", action="version", version=f"holdfast {holdfast.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__, epilog=parser.epilog)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _complain(error: object, code: int) -> int:
    print(f"holdfast: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code
