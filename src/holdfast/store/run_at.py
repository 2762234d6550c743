"""From a location to the stored run: the only place that chooses between disk and object store."""

from __future__ import annotations

from collections.abc import Callable

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


def run_for_one_look(location: Location, patience_s: float) -> tuple[RunStore, Callable[[], None]]:
    """For a reader that asks for the same several times, and what makes it forget the answers. On a disk nothing is
    remembered: reading a file again costs little."""
    if location.path is not None:
        return run_at(location, patience_s), lambda: None
    from holdfast.store.objects.once_objects import OnceObjects
    from holdfast.store.remote.object_run import ObjectRun

    objects = OnceObjects(location.open(patience_s))
    return ObjectRun(location, objects, patience_s), objects.forget
