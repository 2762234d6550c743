"""Which committed checkpoints may go. The newest, the pinned and those under validation never do."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from holdfast.core.run.state import CheckpointRecord, RunSpec, ValidationStatus


def superseded(checkpoints: Sequence[CheckpointRecord], spec: RunSpec, pinned: Collection[str]) -> list[str]:
    """The ids to delete, oldest first, so that at most ``num_to_keep`` remain beside what must stay."""
    if spec.num_to_keep is None or len(checkpoints) <= spec.num_to_keep:
        return []
    by_age = sorted(checkpoints, key=lambda c: c.report)
    keep = {c.id for c in ranked(checkpoints, spec)[-spec.num_to_keep :]} | {by_age[-1].id} | set(pinned)
    keep |= {c.id for c in checkpoints if c.validation is ValidationStatus.PENDING}
    return [c.id for c in by_age if c.id not in keep]


def ranked(checkpoints: Sequence[CheckpointRecord], spec: RunSpec) -> list[CheckpointRecord]:
    """The best last; without a score the newest."""
    return sorted(checkpoints, key=lambda c: _worth(c, spec) if spec.scored else (True, 0.0, c.report))


def _worth(checkpoint: CheckpointRecord, spec: RunSpec) -> tuple[bool, float, int]:
    """Worse sorts first; without a number a checkpoint is worst of all; of equals the later is better."""
    score = checkpoint.score
    if score is None or math.isnan(score):
        return False, 0.0, checkpoint.report
    return True, (score if spec.score_order == "max" else -score), checkpoint.report
