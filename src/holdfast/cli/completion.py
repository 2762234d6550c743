"""Print a script that completes holdfast's commands and options in a shell, as its parser has them.

In ~/.bashrc: eval "$(holdfast completion bash)". In ~/.zshrc, after compinit: eval "$(holdfast completion zsh)".
For fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
"""

from __future__ import annotations

import argparse

from holdfast.cli import output

SHELLS = ("bash", "fish", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which one")


def run(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise ValueError("holdfast completion needs shtab: pip install 'holdfast[completion]'") from None
    from holdfast.cli.main import COMMANDS, parser

    top = parser(COMMANDS)
    _complete_files(top, shtab.FILE)
    script = shtab.complete(top, arguments.shell)
    if arguments.json:
        output.print_json({"shell": arguments.shell, "script": script})
    else:
        print(script)
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: object) -> None:
    """What takes a value and names no choices takes a file, a directory or a run."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, files)
        elif action.nargs != 0 and not action.choices:
            action.complete = files  # type: ignore[attr-defined]
