"""Checkpoints that are not saved yet: files that ranks have reported, and that wait on this machine's disks.

A run on disk stages them in its own directory. One on an object store stages them in the scratch directory of each
node, so they are seen only where a node of the run is. Reading changes nothing, and what vanishes meanwhile was saved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import settings
from holdfast.core.run.events import AttemptStarted
from holdfast.store import scratch
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location

_STAGED = re.compile(r"attempt-(\d+)-report-(\d+)")
_UNSAVED = re.compile(r"\.(.+)\.unsaved")


@dataclass(frozen=True)
class PendingCheckpoint:
    since: float  # when its first file was written
    size: int
    ranks: int = 0  # that have staged their part
    attempt: int = 0  # 0: not known
    report: int = 0
    id: str = ""  # only when it is whole, and uploaded now

    @property
    def is_whole(self) -> bool:
        return bool(self.id)


def pending_checkpoints(
    location: Location, identity: dict[str, Any], attempts: Sequence[AttemptStarted]
) -> list[PendingCheckpoint]:
    """The oldest first. ``attempts``: those that the journal has."""
    bases = {group.attempt_number: group.base for group in attempts}
    found: dict[Any, PendingCheckpoint] = {}
    root = scratch.scratch_root(settings.load().scratch_dir)
    for home in scratch.homes_here(root, location, identity.get("id")):
        for one in [*_staged(home, bases), *_gathered(home)]:
            key = one.id or (one.attempt, one.report)
            known = found.get(key)
            found[key] = one if known is None else _joined(known, one)
    return sorted(found.values(), key=lambda one: (one.since, one.report))


def _staged(home: RunLayout, bases: dict[int, int]) -> Iterator[PendingCheckpoint]:
    for path in scratch.entries(home.staging_dir):
        match = _STAGED.fullmatch(path.name)
        if match is None or (attempt := int(match[1])) not in bases:
            continue
        ranks = [rank for rank in scratch.entries(path) if rank.name.startswith("rank-")]
        files = [found for rank in ranks for found in _files(rank)]
        if files:
            size, since = sum(size for size, _ in files), min(time for _, time in files)
            yield PendingCheckpoint(since, size, len(ranks), attempt, bases[attempt] + int(match[2]) + 1)


def _gathered(home: RunLayout) -> Iterator[PendingCheckpoint]:
    """What a node has gathered for storage and not uploaded yet."""
    for path in scratch.entries(home.checkpoints_dir):
        match = _UNSAVED.fullmatch(path.name)
        if match is not None:
            files = list(_files(home.checkpoints_dir / match[1]))
            if files:
                yield PendingCheckpoint(min(time for _, time in files), sum(size for size, _ in files), id=match[1])


def _joined(a: PendingCheckpoint, b: PendingCheckpoint) -> PendingCheckpoint:
    """Parts of one checkpoint on two nodes."""
    return replace(a, since=min(a.since, b.since), size=a.size + b.size, ranks=a.ranks + b.ranks)


def _files(directory: Path) -> Iterator[tuple[int, float]]:
    """Size and time of each, links not followed."""
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                known = os.lstat(Path(root, name))
            except OSError:
                continue
            yield known.st_size, known.st_mtime
