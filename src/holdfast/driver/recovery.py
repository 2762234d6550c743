"""The journal is compared with the checkpoints on disk, when a driver starts."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run import reconciliation
from holdfast.runs.past import Past
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.sealed import Damage

from .committed_events import stored_of

FOUND_DAMAGED = "it was found damaged by an earlier driver"
GONE = "its manifest is missing"


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
