"""Print a script that completes holdfast's commands and options in a shell, as its parser has them.

In ~/.bashrc: eval "$(holdfast completion bash)". In ~/.zshrc, after compinit: eval "$(holdfast completion zsh)".
For fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.cli import output


class Option(NamedTuple):
    names: list[str]
    help: str
    takes_value: bool


class Node(NamedTuple):
    """A command: the words that lead to it, and what may follow them."""

    words: tuple[str, ...]
    help: str
    below: list[str]
    options: list[Option]
    choices: list[str]  # of its arguments; else they are files, directories or runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(SHELLS), help="which one")


def run(arguments: argparse.Namespace) -> int:
    from holdfast.cli.main import COMMANDS, parser

    script = SHELLS[arguments.shell](list(_nodes(parser(COMMANDS), (), "")))
    if arguments.json:
        output.print_json({"shell": arguments.shell, "script": script})
    else:
        print(script)
    return 0


def _nodes(parser: argparse.ArgumentParser, words: tuple[str, ...], help: str) -> Iterator[Node]:
    options: list[Option] = []
    choices: list[str] = []
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            options.append(Option(list(action.option_strings), action.help or "", action.nargs != 0))
        elif action.choices:
            choices += map(str, action.choices)
    yield Node(words, help, list(below), options, choices)
    for name, command in below.items():
        yield from _nodes(command, (*words, name), helps.get(name, ""))


def _bash(nodes: list[Node]) -> str:
    cases = []
    for node in nodes:
        words = [*node.below, *node.choices, *(name for option in node.options for name in option.names)]
        cases.append(f'    "{" ".join(node.words)}") words="{" ".join(words)}" valued="{_valued(node)}" ;;')
    table = "\n".join(cases)
    return f"""_holdfast() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local path="" word="" words="" valued="" known=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    for known in {_commands(nodes)}; do
      if [ "$known" = "${{path:+$path }}$word" ]; then path="$known"; break; fi
    done
  done
  case "$path" in
{table}
  esac
  if [[ -n "$valued" && "|$valued|" == *"|$before|"* ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ "$current" == -* || -z "$path" ]] || COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -o bashdefault -F _holdfast holdfast"""


def _zsh(nodes: list[Node]) -> str:
    """Its own, as bash's array slices mean something else there; ``path`` and ``words`` are the shell's names."""
    cases = []
    for node in nodes:
        helps = _helps_below(nodes, node)
        words = " ".join(_zsh_text(name, helps.get(name, "")) for name in [*node.below, *node.choices])
        options = " ".join(_zsh_text(name, option.help) for option in node.options for name in option.names)
        cases.append(f'    "{" ".join(node.words)}") names=({words}); options=({options}); valued="{_valued(node)}" ;;')
    table = "\n".join(cases)
    return f"""_holdfast() {{
  local at="" word="" known="" valued=""
  local -a names options
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    for known in {_commands(nodes)}; do
      if [[ "$known" == "${{at:+$at }}$word" ]]; then at="$known"; break; fi
    done
  done
  case "$at" in
{table}
  esac
  if [[ -n "$valued" && "|$valued|" == *"|${{words[CURRENT-1]}}|"* ]]; then
    _files
  elif [[ "${{words[CURRENT]}}" == -* ]]; then
    _describe -o option options
  else
    _describe command names
    [[ -z "$at" ]] || _files
  fi
}}
compdef _holdfast holdfast"""


def _zsh_text(name: str, help: str) -> str:
    text = f"{name}:{help}".replace("'", "'\\''")
    return f"'{text}'"


def _commands(nodes: list[Node]) -> str:
    return " ".join(f'"{" ".join(node.words)}"' for node in nodes if node.words)


def _valued(node: Node) -> str:
    return "|".join(name for option in node.options if option.takes_value for name in option.names)


def _helps_below(nodes: list[Node], node: Node) -> dict[str, str]:
    return {other.words[-1]: other.help for other in nodes if other.words and other.words[:-1] == node.words}


def _fish(nodes: list[Node]) -> str:
    lines = ["complete -c holdfast -f -n 'test (count (commandline -opc)) -eq 1'"]
    for node in nodes:
        condition = _fish_condition(node)
        helps = _helps_below(nodes, node)
        for name in [*node.below, *node.choices]:
            lines.append(
                f"complete -c holdfast -n {_fish_text(condition)} -a {name} -d {_fish_text(helps.get(name, ''))}"
            )
        for option in node.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = " -r" if option.takes_value else ""
            lines.append(f"complete -c holdfast -n {_fish_text(condition)} {names}{value} -d {_fish_text(option.help)}")
    return "\n".join(lines)


def _fish_condition(node: Node) -> str:
    if not node.words:
        return "__fish_use_subcommand"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in node.words)
    return f"{seen}; and not __fish_seen_subcommand_from {' '.join(node.below)}" if node.below else seen


def _fish_text(text: str) -> str:
    escaped = re.sub(r"(['\\])", r"\\\1", text)
    return f"'{escaped}'"


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
