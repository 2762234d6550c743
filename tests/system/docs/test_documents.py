"""What the documents say can be checked against the code, and is."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.cli.main import COMMANDS
from holdfast.core.failures import FailureKind
from holdfast.settings import Settings
from support.docs.page_blocks import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


def test_settings_are_documented() -> None:
    rows = re.findall(r"^\| `(HOLDFAST_\w+)` \| `([^`]*)` \|", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    expected = []
    for field in fields(Settings):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        expected.append((f"HOLDFAST_{field.name.upper()}", default))
    assert rows == expected


def test_make_help_lists_the_targets() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    table = re.findall(r"^\| `make (\w+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    targets = re.findall(r"^make (\w+)", done.stdout, re.MULTILINE)
    assert set(table) <= set(targets)


def test_failure_classes_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z -]+)` \|", (ROOT / "docs/failure-classes.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(kind.value for kind in FailureKind)


def test_commands_are_documented() -> None:
    rows = re.findall(r"^\| `holdfast (\w+)", (ROOT / "docs/command-line.md").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(rows)) == list(COMMANDS)


def test_options_of_run_are_documented() -> None:
    """As those of ``holdfast run --help``; the common ones are said for all commands at once."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--help"], capture_output=True, text=True, timeout=60
    )
    offered = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE)) - {"--help", "--json"}
    text = (ROOT / "docs/command-line.md").read_text()
    assert {option for option in offered if f"`{option}" not in text} == set()
