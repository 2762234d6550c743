"""Which storage belongs to a location: on a disk that the driver reaches, or remote with a local scratch directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.engine.engine_interface import Inbox
from holdfast.settings import Settings
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.scratch import make_scratch_root

from .disk_storage import DiskStorage
from .remote_storage import RemoteStorage
from .storage import Storage

D = TypeVar("D", bound=DiskStorage)
R = TypeVar("R", bound=RemoteStorage)
MakeDisk = Callable[[RunLayout, Inbox, str | None], D]
MakeRemote = Callable[[Location, Path, Inbox, str | None, float], R]


def storage_at(location: Location, inbox: Inbox, settings: Settings, score_attribute: str | None = None) -> Storage:
    return storage_of(DiskStorage, RemoteStorage, location, inbox, settings, score_attribute)


def storage_of(
    disk: MakeDisk[D],
    remote: MakeRemote[R],
    location: Location,
    inbox: Inbox,
    settings: Settings,
    score_attribute: str | None,
) -> D | R:
    """The storage for a location."""
    if location.path is not None:
        return disk(RunLayout(location.path), inbox, score_attribute)
    return remote(
        location, make_scratch_root(settings.scratch_dir), inbox, score_attribute, settings.storage_patience_s
    )
