"""The door that starting and recovering share: take the lease, replay the journal, compare it with what is stored."""

from __future__ import annotations

from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.core.run import events as ev
from holdfast.core.run import reconciliation
from holdfast.core.run.reconciliation import Stored
from holdfast.core.run.state import CheckpointRecord, ValidationStatus
from holdfast.runs.past import Past
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.manifests import Manifest
from holdfast.store.sealed import Damage

FOUND_DAMAGED = "it was found damaged by an earlier driver"
GONE = "its manifest is gone"


def reconcile(past: Past, store: CheckpointStore, score_attribute: str | None) -> tuple[list[ev.Event], list[Damage]]:
    """The events that make the journal's view agree with the manifests on disk."""
    manifests, damage = store.scan()
    stored = [stored_of(manifest, score_attribute) for manifest in manifests]
    why = {d.path.rpartition("/")[2].removesuffix(".json"): d.what for d in damage}
    gone = {c.id: why.get(c.id, GONE) for c in past.state.checkpoints} | {m.id: "" for m in manifests}
    stock = reconciliation.reconcile(past.state, past.given_up, stored, {id: text for id, text in gone.items() if text})
    for id in stock.unwanted:
        store.delete(id)
    for id in stock.damaged:
        store.quarantine(id, FOUND_DAMAGED)
    return list(stock.events), damage


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
