"""Which checkpoints retention must keep, computed independently of the machine."""

from __future__ import annotations

import math

from holdfast.core.run.state import CheckpointRecord, RunSpec, ValidationStatus


def held_by(record: CheckpointRecord, records: list[CheckpointRecord], spec: RunSpec, pinned: str | None) -> str | None:
    """Why retention must keep the record; None if it may be deleted."""
    if spec.num_to_keep is None:
        return "kept with all the others"
    if record.id == pinned:
        return "what the attempt resumed from"
    if record.validation is ValidationStatus.PENDING:
        return "being validated"
    if all(other.report <= record.report for other in records):
        return "the newest"
    better = sum(_is_better(other, record, spec) for other in records if other is not record)
    return "among the best" if better < spec.num_to_keep else None


def _is_better(one: CheckpointRecord, other: CheckpointRecord, spec: RunSpec) -> bool:
    if spec.scored:
        ours = -math.inf if one.score is None or math.isnan(one.score) else one.score
        theirs = -math.inf if other.score is None or math.isnan(other.score) else other.score
        if spec.score_order == "min":
            ours, theirs = (-x if x != -math.inf else x for x in (ours, theirs))
        if ours != theirs:
            return ours > theirs
    return one.report > other.report
