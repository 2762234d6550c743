"""The state diagram in the docs, drawn from the machine's own table, so that the two cannot differ."""

from __future__ import annotations

from holdfast.core.run.phases import TRANSITIONS
from holdfast.core.run.state import Phase


def mermaid() -> str:
    """The run's phases and what leads from one to the next, in the language of Mermaid."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.IDLE.value}"]
    lines += [f"    {was.value} --> {now.value}: {trigger}" for (was, trigger), now in TRANSITIONS.items()]
    lines.append(f"    {Phase.ENDED.value} --> [*]")
    return "\n".join(lines) + "\n"
