"""Which checkpoints of a run are meant. One that the run does not have is an error that names those that it has."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.runs.stored_run import StoredRun
from holdfast.store.manifests import Manifest

ID_HELP = "a checkpoint's name, as holdfast checkpoints lists it"
_SHOWN = 20


def chosen(stored: StoredRun, ids: Sequence[str]) -> list[Manifest]:
    """Those of these names, in the order of their reports; all if none is named."""
    manifests = stored.manifests()[0]
    known = [manifest.id for manifest in manifests]
    for id in ids:
        if id not in known:
            has = ", ".join(known[-_SHOWN:]) or "none"
            more = f" and {len(known) - _SHOWN} older ones" if len(known) > _SHOWN else ""
            raise ValueError(f"{stored.location} has no checkpoint {id!r}. It has: {has}{more}.")
    return [manifest for manifest in manifests if not ids or manifest.id in ids]
