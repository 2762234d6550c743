"""The examples of the frameworks are the scripts of their guides, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.docs.page_blocks import ROOT, blocks

EXAMPLES = sorted((ROOT / "examples" / "frameworks").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_is_that_of_the_guide(example: Path) -> None:
    found = re.search(r"The guide (docs/\S+) explains it", example.read_text())
    assert found, "the docstring names the guide"
    scripts = [block.code for block in blocks(ROOT / found[1]) if block.language == "python"]
    assert example.read_text().partition('"""\n\n')[2] in scripts
