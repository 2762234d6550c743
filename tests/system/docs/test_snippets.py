"""Every snippet and command of the README and of the documentation runs: see ``page_blocks`` for how a page says so."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.page_blocks import (
    OTHERS,
    PYTHON,
    ROOT,
    SHELL,
    blocks,
    commands,
    loose_commands,
    makes,
    name_of,
    needs_frameworks,
    needs_horovod,
    pages,
)
from support.repository import SUPPORT

RUNNER = SUPPORT / "docs" / "page_runner.py"
PATIENCE_S = 240.0


def _runs(page: Path) -> bool:
    if needs_frameworks(page) or needs_horovod(page):
        return False
    return any(not block.not_run and block.language in (*PYTHON, *SHELL) for block in blocks(page))


@pytest.mark.timeout(PATIENCE_S + 30)
@pytest.mark.parametrize("page", [page for page in pages() if _runs(page)], ids=name_of)
def test_the_page_runs(
    page: Path, page_environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = tmp_path / "page"
    directory.mkdir()
    if "<!-- with S3 -->" in page.read_text():
        page_environment.update(request.getfixturevalue("s3"))
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(RUNNER), str(page)],
            cwd=directory,
            env=page_environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert code == 0, (tmp_path / "output").read_text(errors="replace")


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_blocks_are_what_they_say(page: Path) -> None:
    """What is not run can at least be read, and nothing that is code is out of sight."""
    assert loose_commands(page) == [], "fence these, so that they are run"
    for block in blocks(page):
        where = f"{block.page}:{block.line}"
        assert block.language in (*PYTHON, *SHELL, *OTHERS), f"{where}: say what language it is"
        if block.language in PYTHON:
            ast.parse(block.code, where)
        elif block.language in SHELL:
            parsed = subprocess.run(["bash", "-n", "-c", commands(block)], capture_output=True, text=True, timeout=30)
            assert parsed.returncode == 0, f"{where}: {parsed.stderr}"


_MAKES = sorted({(command, name_of(page)) for page in pages() for command in makes(page)})


@pytest.mark.parametrize(("command", "page"), _MAKES, ids=[f"{page}: {command}" for command, page in _MAKES])
def test_make_knows_the_target(command: str, page: str) -> None:
    command = command.replace("make ", "make --dry-run --silent ", 1)
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{page}: {command}: {done.stderr}"


@pytest.mark.parametrize("code", ["python\ndef f():\n    return 1 / 0\n\n\nf()\n", "sh\ntrue\nfalse\ntrue\n"])
def test_a_broken_page_is_seen(code: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```{code}```\n")
    done = subprocess.run([sys.executable, RUNNER, page], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "page.md" in done.stderr


def test_what_is_said_of_a_block_is_read() -> None:
    found = [block for page in pages() for block in blocks(page)]
    said = sum(page.read_text().count("<!-- not run: ") for page in pages())
    assert sum(bool(block.not_run) for block in found) == said, "a mark is not on the line before its block"
