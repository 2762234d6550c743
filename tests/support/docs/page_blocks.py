"""The code of a page of the documentation, and what the page says about running it.

A page is a script of its own: its blocks run in order, in one process and one empty directory.

    ```python                   runs
    ```python title="train.py"  is written to that file; any language
    ```sh                       runs; a line that begins with make is only looked up
    ```console                  its lines after "$ " run; the others are output
    ```python with <!-- not run: why --> on the line before: is compiled; a shell block is parsed
    <!-- exits with 1 -->       before a shell block: how its last command is expected to end
    <!-- runs before            Python that a reader does not need to see, up to a line with -->
    <!-- with S3 -->            anywhere in the page: there is an S3 server with a bucket named bucket
    <!-- with frameworks -->    anywhere in the page: it runs with make frameworks, not with make test
    <!-- with horovod -->       anywhere in the page: it runs with make horovod
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support.repository import ROOT

PYTHON, SHELL = ("python", "py"), ("sh", "console")
OTHERS = ("text", "json", "yaml", "diff", "mermaid", "promql", "ini")

_FENCE = re.compile(r"^( *)```(\w*)(.*)$")
_HIDDEN = re.compile(r"^<!-- runs before\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_EXITS = re.compile(r"^<!-- exits with (\d+) -->$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line of code, from 1
    language: str
    code: str
    file: str = ""
    not_run: str = ""
    exits: int = 0
    hidden: bool = False


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def needs_frameworks(page: Path) -> bool:
    return "<!-- with frameworks -->" in page.read_text()


def needs_horovod(page: Path) -> bool:
    return "<!-- with horovod -->" in page.read_text()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> list[Block]:
    found, lines, at, said = [], page.read_text().splitlines(), 0, ""
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence or _HIDDEN.match(lines[at]):
            end = at + 1
            while lines[end].strip() != ("```" if fence else "-->"):
                end += 1
            indent = len(fence[1]) if fence else 0
            code = "".join(f"{line[indent:]}\n" for line in lines[at + 1 : end])
            found.append(_block(name_of(page), at + 2, fence, code, said))
            at, said = end + 1, ""
            continue
        if lines[at].strip():
            said = lines[at].strip()
        at += 1
    return found


def _block(page: str, line: int, fence: re.Match[str] | None, code: str, said: str) -> Block:
    if fence is None:
        return Block(page, line, "python", code, hidden=True)
    title = re.search(r'title="([^"]+)"', fence[3])
    not_run, exits = _NOT_RUN.match(said), _EXITS.match(said)
    return Block(
        page,
        line,
        fence[2],
        code,
        file=title[1] if title else "",
        not_run=not_run[1] if not_run else "",
        exits=int(exits[1]) if exits else 0,
    )


def commands(block: Block) -> str:
    """What of a shell block is typed, without the output that a console shows."""
    if block.language == "sh":
        return block.code
    typed = (line[2:] for line in block.code.splitlines() if line.startswith(("$ ", "> ")))
    return "".join(f"{line}\n" for line in typed)


def makes(page: Path) -> list[str]:
    """The commands that run make, in blocks that are fenced or indented."""
    lines = (line.strip().removeprefix("$ ") for line in page.read_text().splitlines() if not line.startswith("|"))
    return [line.split("#")[0].strip() for line in lines if re.match(r"(\w+=\S+ )*make [a-z]+( *$| +[#A-Z]\S*)", line)]


def runnable(block: Block) -> str:
    """The commands that are not looked up only."""
    wanted = (line for line in commands(block).splitlines() if not re.match(r"(\w+=\S+ )*make\b", line))
    return "".join(f"{line}\n" for line in wanted)


def loose_commands(page: Path) -> list[str]:
    """Lines of code that no test would see, because they are indented and not fenced."""
    found, inside = [], False
    for line in page.read_text().splitlines():
        if _FENCE.match(line) or _HIDDEN.match(line) or line == "-->":
            inside = not inside
        elif not inside and re.match(r" {4,}(\$ |holdfast |pip |python |curl |eval |def |import |from )", line):
            found.append(line.strip())
    return found
