"""The cursor of an epoch: which rows have not been taken yet. It fits any number of ranks, and is the same on all of
them.

``left`` are spans of positions (``shard_split``); the last of them has no end if the number of rows is unknown.
``mark`` is the block from which such a stream resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.data.row_flow import LocalShuffle, Mark
from holdfast.data.shard_split import Span, merged

VERSION = 2  # 1 had no ``data``, the digest of the sources
Left = tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class RowCursor:
    """``left`` is None at the start of an epoch."""

    epoch: int = 0
    left: Left | None = None
    mark: Mark = field(default_factory=Mark)
    shuffle: LocalShuffle | None = None

    @property
    def is_open(self) -> bool:
        return self.left is not None and any(stop is None for _, stop in self.left)

    def spans(self, rows: int) -> list[Span]:
        """The remaining part of this many rows."""
        if self.left is None:
            return [(0, rows)] if rows else []
        return merged((start, rows if stop is None else stop) for start, stop in self.left)

    def with_left(self, spans: list[Span]) -> RowCursor:
        return replace(self, left=tuple(spans))

    def as_dict(self, plan: str, rows: int | None, data: str) -> dict[str, Any]:
        shuffle = self.shuffle
        return {
            "version": VERSION,
            "plan": plan,
            "data": data,
            "rows": rows,
            "epoch": self.epoch,
            "left": None if self.left is None else [list(span) for span in self.left],
            "block": self.mark.block,
            "block_start": self.mark.position,
            "shuffle": None if shuffle is None else [shuffle.window, shuffle.seed],
        }

    @staticmethod
    def from_dict(state: Mapping[str, Any], plan: str, rows: int | None, data: Callable[[], str]) -> RowCursor:
        """``data`` is called if the state has a digest to compare."""
        if not isinstance(state, Mapping) or state.get("version") not in range(1, VERSION + 1):
            raise ValueError(f"load_state_dict({state!r:.200}): pass what state_dict() of a dataset's shard returned")
        if (state["plan"], state["rows"]) != (plan, rows):
            raise ValueError(
                f"load_state_dict: the state was saved with another dataset, whose rows have another order: "
                f"{state['plan']} with {_count(state['rows'])}. This one is {plan} with {_count(rows)}. Pass the "
                "dataset that the run started with, or restart the epoch with set_epoch()."
            )
        if state["version"] > 1 and state["data"] != data():
            raise ValueError(
                f"load_state_dict: the state was saved with other data. {plan} with {_count(rows)} then had files with "
                "other names, sizes or row groups, other values in memory, or other filters. Pass the dataset that the "
                "run started with, or restart the epoch with set_epoch()."
            )
        left, shuffle = state["left"], state["shuffle"]
        return RowCursor(
            int(state["epoch"]),
            None if left is None else tuple((start, stop) for start, stop in left),
            Mark(state["block"], state["block_start"]),
            None if shuffle is None else LocalShuffle(*shuffle),
        )


def _count(rows: int | None) -> str:
    return "an unknown number of rows" if rows is None else f"{rows} rows"
