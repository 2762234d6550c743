"""The door that starting and recovering share: take the lease, replay the journal, compare it with what is stored."""

from __future__ import annotations

from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, ValidationStatus
from holdfast.runs.past import Past
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.manifests import Manifest
from holdfast.store.sealed import Damage


def reconcile(past: Past, store: CheckpointStore, score_attribute: str | None) -> tuple[list[ev.Event], list[Damage]]:
    """The events that make the journal's view agree with the manifests, which are what counts.

    What was given up for good stays so, whatever a crash left of it: another group may have gone another way since.
    """
    manifests, damage = store.scan()
    stored = {manifest.id for manifest in manifests}
    known = {checkpoint.id for checkpoint in past.state.checkpoints}
    events: list[ev.Event] = []
    for manifest in manifests:
        if manifest.id in known:
            continue
        if (manifest.generation, manifest.index) in past.given_up:
            store.delete(manifest.id)
        elif manifest.id in past.state.damaged:
            store.quarantine(manifest.id, "it was found damaged by an earlier driver")
        else:
            events.append(committed(manifest, score_attribute, index=-1))
    named = {d.path.rpartition("/")[2].removesuffix(".json"): d.what for d in damage}
    for checkpoint in past.state.checkpoints:
        if checkpoint.id not in stored:
            events.append(ev.Damaged(checkpoint.id, named.get(checkpoint.id, "its manifest is gone")))
    return events, damage


def committed(manifest: Manifest, score_attribute: str | None, index: int) -> ev.Committed:
    status = ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING
    record = CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, score_attribute), status)
    return ev.Committed(record, manifest.generation, index, manifest.validation)


def score_of(metrics: Any, attribute: str | None) -> float | None:
    """The number by which retention compares; "a/b" looks into nested metrics."""
    if attribute is None or not isinstance(metrics, dict):
        return None
    return number(lookup(metrics, attribute))
