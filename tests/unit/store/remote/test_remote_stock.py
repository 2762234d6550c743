"""Taking stock: the names are listed beside the claim, so an earlier driver may still work while they are."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, RunSpec
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.errors import RunInUseError
from holdfast.runs.past import read_past
from holdfast.store.location import Location
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.testing.fake_objects import Bucket, FakeObjects
from support.object_stores.drivers import begin
from support.object_stores.uploads import upload

WITHIN_S = 120.0


class Earlier:
    """A driver that has taken stock with epoch 1, and has committed and journalled the checkpoint "one"."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._objects = FakeObjects(bucket)
        self._journal: RemoteJournal = begin(self._objects)[0]
        self._append(ev.DriverStarted(1, RunSpec(nodes_hold_files=True)), ev.AttemptStarted(1, 1, None, 0))
        self.commit("one", 1)
        self.journal("one", 1)

    def commit(self, id: str, report: int) -> None:
        RemoteCheckpoints(self._objects).commit(upload(self._bucket, id, epoch=1, report=report))

    def journal(self, id: str, report: int) -> None:
        self._append(ev.Committed(CheckpointRecord(id, report), 1, report - 1))

    def find_damaged(self, id: str) -> None:
        self._append(ev.Damaged(id, "a bit is wrong"))

    def quarantine(self, id: str) -> None:
        RemoteCheckpoints(self._objects).quarantine(id, "a bit is wrong")

    def _append(self, *events: ev.Event) -> None:
        self._journal.append([ev.journalled(event) for event in events], 1.0)


@dataclass
class FakeLocation:
    objects: FakeObjects
    identity = name = "run"

    def open(self, patience_s: float) -> FakeObjects:
        return self.objects


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def later(bucket: Bucket, tmp_path: Path) -> Iterator[Later]:
    later = Later(bucket, tmp_path)
    yield later
    later.end()


class Later:
    """The next driver, up to when it has taken stock."""

    def __init__(self, bucket: Bucket, scratch: Path) -> None:
        self.objects = FakeObjects(bucket)
        location = cast(Location, FakeLocation(self.objects))
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.storage = RemoteStorage(location, scratch, inbox, None, WITHIN_S)
        self._leads = False

    def take_over(self, between: Callable[[], None] = lambda: None) -> list[ev.Event]:
        """``between`` is called when the names are listed and the journal is not yet claimed."""

        def before(_: int, kind: str, key: str) -> None:
            if kind == "create" and key.startswith("journal/"):
                self.objects.before = None
                self.storage._listed.result(WITHIN_S)
                between()

        self.objects.before = before
        self.storage.acquire()
        self._leads = True
        records, damage = self.storage.open()
        self.storage.settle("id")
        found, more = self.storage.take_stock(read_past(records))
        assert not [*damage, *more]
        return found

    def end(self) -> None:
        if self._leads:
            self.storage.close(True)
            self.storage.release()


def test_what_the_journal_knows_is_there(bucket: Bucket, later: Later) -> None:
    Earlier(bucket)
    assert later.take_over() == []


def test_what_was_committed_and_not_journalled_is_found(bucket: Bucket, later: Later) -> None:
    Earlier(bucket).commit("two", 2)
    [found] = later.take_over()
    assert isinstance(found, ev.Committed)
    assert found.record.id == "two"


def test_what_is_committed_and_journalled_between_the_names_and_the_claim_is_not_gone(
    bucket: Bucket, later: Later
) -> None:
    earlier = Earlier(bucket)

    def between() -> None:
        earlier.commit("two", 2)
        earlier.journal("two", 2)

    assert later.take_over(between) == []


def test_what_comes_between_the_names_and_the_claim_and_is_not_journalled_does_not_count(
    bucket: Bucket, later: Later
) -> None:
    """Like a commit that lands after the claim: nobody was told of it, and the next driver collects it."""
    earlier = Earlier(bucket)
    assert later.take_over(lambda: earlier.commit("two", 2)) == []
    with pytest.raises(RunInUseError):
        earlier.journal("two", 2)


def test_what_is_gone_is_said_to_be(bucket: Bucket, later: Later) -> None:
    Earlier(bucket)
    del bucket.content["checkpoints/one.json"]
    assert later.take_over() == [ev.Damaged("one", "its manifest is missing")]


@pytest.mark.parametrize("before_the_claim", [True, False])
def test_what_an_earlier_driver_found_damaged_keeps_its_files(
    bucket: Bucket, later: Later, before_the_claim: bool
) -> None:
    """Whether it is set aside while the names are listed, or by the one who takes over."""
    earlier = Earlier(bucket)
    earlier.commit("two", 2)
    earlier.journal("two", 2)
    earlier.find_damaged("one")
    if before_the_claim:
        earlier.quarantine("one")
    assert later.take_over() == []
    later.storage.collect(keep={"two"})
    later.storage.close(True)
    listing = RemoteCheckpoints(FakeObjects(bucket)).listing()
    assert (listing.committed, listing.quarantined) == (["two"], ["one"])
    assert "one" in listing.directories


def test_a_driver_that_is_refused_leaves_no_thread(bucket: Bucket, later: Later) -> None:
    """As every test here, it is checked for that."""
    Earlier(bucket)

    def between() -> None:
        begin(FakeObjects(bucket))

    with pytest.raises(RunInUseError):
        later.take_over(between)
