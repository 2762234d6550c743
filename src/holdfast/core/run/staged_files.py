"""What follows from where the files of a report are until its checkpoint is committed. A row for each kind of storage:
nothing else in the core or the driver tells them apart."""

from __future__ import annotations

from msgspec import Struct


class StagedFiles(Struct, frozen=True):
    are_uploaded: bool  # a complete checkpoint is gathered and uploaded by its nodes, and is committed after that
    outlive_attempt: bool  # complete checkpoints of an attempt that has ended are stored while the next one trains
    outlive_driver: bool  # nodes may have files of an earlier driver; otherwise storage has taken them up already
    keep_names: bool  # a name is used once in a run, because a late request may still write under it
    are_with_node: bool  # only that node can hash and remove them, and they may be lost with it


ON_SHARED_DISK = StagedFiles(
    are_uploaded=False, outlive_attempt=False, outlive_driver=False, keep_names=False, are_with_node=False
)
ON_NODES = StagedFiles(
    are_uploaded=True, outlive_attempt=True, outlive_driver=True, keep_names=True, are_with_node=True
)
