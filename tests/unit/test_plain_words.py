"""Words that read as if translated stay out of the README, the documentation, every --help, every error, and every
comment and docstring."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import COMMANDS, main
from support.docs.page_blocks import pages
from support.repository import ROOT

BANNED = re.compile(
    r"\bgo(?:es)? on\b|\bmend|\b(?<!there )is no (?!t\b|longer)|\banew\b|\bnobody\b|\bwhoever\b|\bfar away\b"
    r"|(?<!most )(?<!drained )\bat once\b"  # as in "at the same time", in tables
    r"|\btaken away\b|has gone|brought back|\brooms?\b|\bseats?\b|\bmake durable\b|\bwithout a word\b",
    re.IGNORECASE,
)
# Comments and docstrings may have technical terms, such as the seats of a cluster, and code between backticks.
IN_CODE = re.compile(
    r"\bgo(?:es|ing)? on\b|\bmend|\b(?<!there )is no (?!t\b|longer)|\banew\b|\bwhoever\b|\bfar away\b|\bat once\b"
    r"|\b(?:has|have|is) gone\b|\bgone through\b|\bbrought back\b|\brooms?\b|\bwithout a word\b",
    re.IGNORECASE,
)
# What a picture showed before the words were settled. A recording of an old release argues against the product.
RETIRED = re.compile(r"\bsettling\b|\bended\b|\bdurable\b|\bgeneration\b|\brestoring\b(?=.*\bnew\b)")
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "testing" not in path.parts)
ACTIONS = ("verify", "export", "delete")


def found(text: str) -> list[str]:
    return [match[0] for match in BANNED.finditer(text)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page(page: Path) -> None:
    assert found(page.read_text()) == []


@pytest.mark.parametrize(
    "arguments", [[], *([name] for name in COMMANDS), *(["checkpoints", name] for name in ACTIONS)]
)
def test_a_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    assert found(" ".join(capsys.readouterr().out.split())) == []


def raised(path: Path) -> Iterator[str]:
    """The texts of the errors that the file raises, and of the warnings that it logs or shows."""
    for node in ast.walk(ast.parse(path.read_text())):
        told = node.exc if isinstance(node, ast.Raise) else node if _is_told(node) else None
        for inside in ast.walk(told) if told is not None else ():
            if isinstance(inside, ast.Constant) and isinstance(inside.value, str):
                yield inside.value


def _is_told(node: ast.AST) -> bool:
    names = ("warning", "error", "exception", "note", "warn")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def test_every_error() -> None:
    texts = [(path, text) for path in SOURCES for text in raised(path)]
    assert len(texts) > 1_000, "there are that many"
    assert [(path.name, text) for path, text in texts if found(text)] == []


def explained(text: str) -> Iterator[str]:
    """The comments and docstrings of a source file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def found_in_code(text: str) -> list[str]:
    words = " ".join(re.sub(r"`+[^`]*`+", "", text).split())
    return [match[0] for match in IN_CODE.finditer(words)]


def test_every_comment_and_docstring() -> None:
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    suspects = {path: text for path, text in sources.items() if IN_CODE.search(" ".join(text.split()))}
    assert len(sources) > 500, "there are that many"
    found = [(path.name, words) for path, text in suspects.items() for words in map(found_in_code, explained(text))]
    assert [pair for pair in found if pair[1]] == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_of_this_release(picture: Path) -> None:
    shown = " ".join(re.findall(r">([^<>]+)<", picture.read_text().partition("</style>")[2]))
    assert [*RETIRED.findall(shown), *found(shown)] == [], "record it again, on a quiet machine: make pictures"


@pytest.mark.parametrize("text", ["It goes on.", "mend the cause", "This is no hang.", "at once", "no seat for it"])
def test_such_words_are_seen(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", ["# the node has gone", "whoever resumes", "It goes\n    on.", "started anew"])
def test_such_words_are_seen_in_code(text: str) -> None:
    assert found_in_code(text)


@pytest.mark.parametrize("text", ["``go on`` asks", "# a seat of the node", "It is no longer used."])
def test_others_are_not_seen_in_code(text: str) -> None:
    assert not found_in_code(text)


@pytest.mark.parametrize("text", ["there is no run", "It is no longer used.", "recommended: ongoing", "runs/away"])
def test_others_are_not(text: str) -> None:
    assert not found(text)
