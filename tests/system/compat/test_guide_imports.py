"""The import lines of Ray's guides work with the root changed, or say which extra to install."""

from __future__ import annotations

import ast

import pytest

from support.compat import docstring_imports, guide_imports
from support.compat.ray_names import source_of

TABLES = (guide_imports.TRAIN, guide_imports.TUNE, guide_imports.MORE)
LINES = [line for table in TABLES for line in guide_imports.lines(table)]


def problem(line: str) -> str:
    """Why the line does not work; empty if it does, or names the extra to install."""
    try:
        exec(guide_imports.changed(line), {})
    except ImportError as error:
        return "" if "pip install 'holdfast[" in str(error) else str(error)
    return ""


@pytest.mark.parametrize("line", [line for line in LINES if line not in guide_imports.NOT_HERE])
def test_a_line_works_or_names_its_extra(line: str) -> None:
    assert problem(line) == ""


@pytest.mark.parametrize("line", guide_imports.NOT_HERE)
def test_a_line_that_is_left_out_fails(line: str) -> None:
    assert "No module named" in problem(line) or "cannot import name" in problem(line)


def test_the_lines_are_rays() -> None:
    """Each module of the table exists in the Ray that is installed; it is found without an import."""
    assert len(guide_imports.lines(guide_imports.TRAIN)) == 61
    assert len(set(LINES)) >= 130
    for line in LINES:
        node = ast.parse(line).body[0]
        module = node.module if isinstance(node, ast.ImportFrom) else line.split()[1]
        assert module == "ray" or source_of("ray", str(module).partition(".")[2]), line


def test_what_docstrings_import_works_or_names_its_extra() -> None:
    found = docstring_imports.all_imports()
    assert len(found) >= 60
    lines = {pair: f"from {pair[0]} import {pair[1]}" if pair[1] else f"import {pair[0]}" for pair in found}
    problems = {pair: problem(line) for pair, line in lines.items()}
    assert {pair for pair, why in problems.items() if why} == set(docstring_imports.NOT_HERE)
