"""The diagram in the docs is the machine's own table."""

from __future__ import annotations

from holdfast.core.run.diagram import mermaid
from holdfast.core.run.phases import TRANSITIONS
from support.repository import ROOT

PAGE = ROOT / "docs" / "state-diagram.md"


def test_the_page_shows_the_table_as_it_is() -> None:
    assert f"```mermaid\n{mermaid()}```\n" in PAGE.read_text(), "docs/state-diagram.md: paste mermaid() again"


def test_every_transition_is_drawn() -> None:
    drawn = mermaid()
    for (was, trigger), now in TRANSITIONS.items():
        assert f"{was.value} --> {now.value}: {trigger}\n" in drawn
