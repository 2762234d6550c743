"""Opens the stored run at a location. This is the only place that chooses between disk and object store."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.interfaces import RunStore
from holdfast.store.location import Location


def run_at(location: Location, patience_s: float) -> RunStore:
    """``patience_s``: how long failing requests to an object store are retried."""
    if location.path is not None:
        from holdfast.store.disk_run import DiskRun
        from holdfast.store.layout import RunLayout

        return DiskRun(RunLayout(location.path))
    from holdfast.store.remote.object_run import ObjectRun

    return ObjectRun(location, location.open(patience_s), patience_s)


def run_for_one_look(location: Location, patience_s: float) -> tuple[RunStore, Callable[[], None]]:
    """A run for a reader that asks for the same data several times, and a function that drops the kept answers. On a
    disk nothing is kept, because reading a file again costs little."""
    if location.path is not None:
        return run_at(location, patience_s), lambda: None
    from holdfast.store.objects.once_objects import OnceObjects
    from holdfast.store.remote.object_run import ObjectRun

    objects = OnceObjects(location.open(patience_s))
    return ObjectRun(location, objects, patience_s), objects.forget
