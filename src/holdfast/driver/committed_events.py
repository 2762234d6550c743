"""Manifests as the core knows them: events and records, with the score that retention compares by."""

from __future__ import annotations

from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.core.run import events as ev
from holdfast.core.run.reconciliation import Stored
from holdfast.core.run.state import CheckpointRecord, ValidationStatus
from holdfast.store.manifests import Manifest


def stored_of(manifest: Manifest, score_attribute: str | None) -> Stored:
    return Stored(committed(manifest, score_attribute, index=-1), manifest.index)


def committed(manifest: Manifest, score_attribute: str | None, index: int) -> ev.Committed:
    status = ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING
    record = CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, score_attribute), status)
    return ev.Committed(record, manifest.attempt_number, index, manifest.validation)


def score_of(metrics: Any, attribute: str | None) -> float | None:
    """The number by which retention compares; "a/b" looks into nested metrics."""
    if attribute is None or not isinstance(metrics, dict):
        return None
    return number(lookup(metrics, attribute))
