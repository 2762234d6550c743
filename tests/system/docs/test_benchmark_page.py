"""One command runs the benchmarks and writes their tables: what it does to the page, with results made by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.repository import ROOT

PROGRAM = ROOT / "benchmarks" / "run_all.py"
FOUND: dict[str, Any] = {
    "machine": "2026-01-01, Linux",
    "title": "Recovery",
    "columns": ["", "seconds"],
    "rows": [["Holdfast", "0.1"], ["Ray Train", "7"]],
    "goals": [{"goal": "quick", "measured": "0.1", "met": True}],
    "notes": ["A note."],
    "samples": {},
}


def run_all(*args: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, args)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- results: recovery -->\nan earlier table\n<!-- end of results: recovery -->\nafter\n")
    return path


def store(directory: Path, **changes: Any) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "recovery.json").write_text(json.dumps(FOUND | changes))
    return directory


def test_a_table_takes_the_place_of_the_last_one_and_prose_stays(page: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run_all("--render", "--results", store(tmp_path / "results"), "--page", page)
        text = page.read_text()
        assert text.startswith("before\n<!-- results: recovery -->\n\n### Recovery\n\n|  | seconds |\n| --- | --- |\n")
        assert "| Ray Train | 7 |\n\n- Met: quick. Measured: 0.1.\n\nA note.\n\nMedians" in text
        assert text.endswith("2026-01-01, Linux.\n\n<!-- end of results: recovery -->\nafter\n")
        assert "earlier" not in text


def test_a_missed_goal_is_an_exit_code(page: Path, tmp_path: Path) -> None:
    missed = [{"goal": "quick", "measured": "9", "met": False}]
    done = run_all("--render", "--results", store(tmp_path / "results", goals=missed), "--page", page, code=1)
    assert "missed: recovery: quick" in done.stdout
    assert "**Missed**: quick" in page.read_text()


def test_wrong_input(page: Path, tmp_path: Path) -> None:
    assert "no benchmark nothing; there are recovery" in run_all("--only", "nothing", code=2).stderr
    assert "--render needs --results DIR" in run_all("--render", code=2).stderr
    page.write_text("no markers")
    done = run_all("--render", "--results", store(tmp_path / "results"), "--page", page, code=1)
    assert "the page has no lines <!-- results: recovery -->" in done.stderr


def test_the_page_of_the_docs_has_a_place_for_each_that_is_a_program() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    names = re.findall(r"<!-- results: (\w+) -->", text)
    assert names == re.findall(r"<!-- end of results: (\w+) -->", text)
    assert set(names) == set(re.findall(r'^    "(\w+)",$', PROGRAM.read_text(), re.MULTILINE))
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in names)
