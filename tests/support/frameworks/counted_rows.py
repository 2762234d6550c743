"""A dataset whose rows a model counts: it has a weight for each row, and a step adds one to those of its batch."""

from __future__ import annotations

from typing import Any

import holdfast.data
from support.frameworks.framework_job import note

ROWS, BATCH, EPOCHS = 44, 4, 3
STEPS = 6 * EPOCHS  # of two workers
END = 1000  # where to strike after the last step


def datasets() -> dict[str, Any]:
    """In another order in each epoch."""
    items = [{"id": number, "y": 0.0} for number in range(ROWS)]
    return {"train": holdfast.data.from_items(items).random_shuffle(seed=3)}


def note_counts(config: dict[str, Any], epochs: int, counts: Any) -> None:
    """At the end of an epoch: how often the steps that the model remembers had each row."""
    note(config, "counts", [epochs, *sorted(set(counts.tolist()))])
