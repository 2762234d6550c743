"""A commit on disk is told first; what is left of its shards is removed when the loop has told it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.run import events as ev
from holdfast.driver.disk_storage import DiskStorage
from holdfast.store import staging
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import FORMAT, Manifest, Shard

WITHIN_S = 120.0
MANIFEST = Manifest(FORMAT, "a", 1, 0, 1, 1, 0.0, {}, [])
Inbox = queue.SimpleQueue[Any]


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    return RunLayout(tmp_path)


@pytest.fixture
def inbox() -> Inbox:
    return queue.SimpleQueue()


@pytest.fixture
def storage(layout: RunLayout, inbox: Inbox) -> Iterator[DiskStorage]:
    storage = DiskStorage(layout, inbox, None)
    storage.acquire()
    yield storage
    storage.close(all_stored=False)
    storage.release()


def commit(storage: DiskStorage, layout: RunLayout) -> Path:
    directory = layout.shard_dir(1, 0, 0)
    directory.mkdir(parents=True)
    (directory / "model.pt").write_bytes(b"weights")
    sealed = staging.seal(Disk(), directory)
    storage.commit(MANIFEST, [Shard(0, layout.shard_path(1, 0, 0), sealed)], lambda: None)
    return directory


def test_the_rest_of_its_shards_waits_until_the_commit_has_been_told(
    storage: DiskStorage, layout: RunLayout, inbox: Inbox
) -> None:
    directory = commit(storage, layout)
    told, before_its_turn = inbox.get(timeout=WITHIN_S), inbox.get(timeout=WITHIN_S)
    assert isinstance(told, ev.Committed)
    before_its_turn()
    in_the_next_one = inbox.get(timeout=WITHIN_S)
    assert directory.is_dir()
    in_the_next_one()
    storage.close(all_stored=False)  # which waits for it
    assert not directory.exists()
    assert (layout.checkpoint_dir("a") / "model.pt").read_bytes() == b"weights"


@pytest.mark.parametrize("all_stored", [False, True])
def test_a_run_that_ends_before_removes_it_then(
    storage: DiskStorage, layout: RunLayout, inbox: Inbox, all_stored: bool
) -> None:
    directory = commit(storage, layout)
    items = [inbox.get(timeout=WITHIN_S) for _ in range(2)]
    storage.close(all_stored=all_stored)
    assert not directory.exists()
    items[1]()
    inbox.get(timeout=WITHIN_S)()  # too late, and not a mistake
