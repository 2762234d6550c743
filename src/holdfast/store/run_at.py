"""From a location to what is stored of the run there: the only place that chooses between disk and object store."""

from __future__ import annotations

from holdfast.store.interfaces import RunStore
from holdfast.store.location import Location


def run_at(location: Location, patience_s: float) -> RunStore:
    """``patience_s``: how long an object store's requests are tried."""
    if location.path is not None:
        from holdfast.store.disk_run import DiskRun
        from holdfast.store.layout import RunLayout

        return DiskRun(RunLayout(location.path))
    from holdfast.store.remote.object_run import ObjectRun

    return ObjectRun(location, location.open(patience_s), patience_s)
