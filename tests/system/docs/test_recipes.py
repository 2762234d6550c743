"""Every file that a page for maintainers names is where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.repository import ROOT

PAGES = sorted((ROOT / "docs" / "maintaining").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_it_names_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", page.read_text()))
    assert named, "it names none"
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing
