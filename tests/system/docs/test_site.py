"""The site is built with warnings as errors, and a reader's browser fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.page_blocks import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        at = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / at.parent / ("" if at.name == "index" else at.name) / "index.html").is_file(), page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="?(?:https?:)?//[^">]*')
    found = {match for page in site.rglob("*.html") for match in fetched.findall(page.read_text())}
    assert not {match for match in found if "canonical" not in match}
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style


def test_the_diagram_is_drawn(site: Path) -> None:
    page = (site / "state-diagram" / "index.html").read_text()
    assert "<svg" in page
    for phase in ("restoring", "waiting", "settling"):
        assert f">{phase}</text>" in page
