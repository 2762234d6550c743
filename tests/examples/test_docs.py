"""What the documents say can be checked against the code, and is."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from example_shell import Shell

from holdfast.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


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


@pytest.mark.timeout(300)
def test_readme_script_runs(shell: Shell, tmp_path: Path) -> None:
    script = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert script is not None
    file = tmp_path / "script.py"
    file.write_text(script.group(1))
    output = shell.run(str(file), cwd=tmp_path)
    assert "'epoch': 49" in output
    assert (tmp_path / "runs/my-run/run.json").is_file()


def test_make_help_lists_the_targets() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    table = re.findall(r"^\| `make (\w+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    targets = re.findall(r"^make (\w+)", done.stdout, re.MULTILINE)
    assert set(table) <= set(targets)
