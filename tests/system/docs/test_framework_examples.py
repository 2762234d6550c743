"""The examples of the frameworks are the first scripts of their guides."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs.page_blocks import ROOT, blocks

EXAMPLES = sorted((ROOT / "examples" / "frameworks").glob("*_training.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_is_that_of_the_guide(example: Path) -> None:
    guide = ROOT / "docs" / f"{example.stem.removesuffix('_training')}.md"
    first = next(block for block in blocks(guide) if block.language == "python")
    assert example.read_text().partition('"""\n\n')[2] == first.code
