"""Every request of every operation can be the last one, or get no answer: what is stored is old or new, never torn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.errors import StorageUnavailableError
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints, begin_upload
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.remote.remote_lease import Opened, RemoteLease
from holdfast.testing.fake_objects import Bucket, Crash, FakeObjects, ObjectFault
from support.object_stores.drivers import begin, said, say
from support.object_stores.uploads import FILES, upload

CRASHES = [ObjectFault.CRASH_BEFORE, ObjectFault.CRASH_AFTER]
SILENCES = [ObjectFault.REFUSED, ObjectFault.LOST_REPLY, ObjectFault.DELAYED]
LONG = "x" * 5000  # so long that a merge leaves a tombstone of it


def copy(bucket: Bucket) -> Bucket:
    return Bucket(dict(bucket.content), bucket.creates_safely)


def boundaries(bucket: Bucket, work: Callable[[FakeObjects], object]) -> Iterator[tuple[int, Bucket]]:
    """Each request that ``work`` makes, counted from 0, with a bucket as it is before any."""
    objects = FakeObjects(copy(bucket))
    work(objects)
    assert objects.steps
    for step in range(objects.steps):
        yield step, copy(bucket)


def with_a_past(bucket: Bucket) -> list[str]:
    """Two epochs, of which the next one's first append but one merges the objects, and what they say."""
    first, _, _ = begin(FakeObjects(bucket))
    for number in range(6):
        say(first, f"{number}")
    say(first, LONG)
    second, _, _ = begin(FakeObjects(bucket))
    for number in range(4):
        say(second, f"more {number}", "and")
    return said(bucket)


@pytest.mark.parametrize("fault", CRASHES)
def test_a_driver_that_dies_leaves_what_it_was_told_is_written_and_no_half(bucket: Bucket, fault: ObjectFault) -> None:
    past = with_a_past(bucket)
    acknowledged: list[str] = []

    def drive(objects: FakeObjects) -> None:
        acknowledged.clear()
        driver, _, _ = begin(objects)
        for number in range(4):
            say(driver, f"a{number}", f"b{number}")
            acknowledged.extend((f"a{number}", f"b{number}"))

    for step, before in boundaries(bucket, drive):
        objects = FakeObjects(before)
        objects.fail(step, fault)
        with pytest.raises(Crash):
            drive(objects)
        number = len(acknowledged) // 2
        old = past + acknowledged
        assert said(before) in (old, [*old, f"a{number}", f"b{number}"])
        found = said(before)
        follower, records, damage = begin(FakeObjects(before))
        assert damage == []
        assert [record.kind for record in records if record.kind != "EpochBegan"] == found
        for number in range(20):
            say(follower, f"then {number}")
        assert said(before) == found + [f"then {number}" for number in range(20)]


def say_at_last(driver: RemoteJournal, word: str) -> None:
    try:
        say(driver, word)
    except StorageUnavailableError:
        say(driver, word)


@pytest.mark.parametrize("fault", SILENCES)
def test_a_driver_that_gets_no_answer_goes_on_and_nothing_counts_that_was_refused(
    bucket: Bucket, fault: ObjectFault
) -> None:
    past = with_a_past(bucket)

    def drive(objects: FakeObjects) -> list[str]:
        acknowledged = []
        driver, _, _ = begin(objects)
        for number in range(6):
            try:
                say(driver, f"{number}", f"{number} too")
                acknowledged += [f"{number}", f"{number} too"]
            except StorageUnavailableError:
                pass
        # As long as nothing follows a refused one, it is open whether it counts: a driver may have died there as well.
        say_at_last(driver, "end")
        return [*acknowledged, "end"]

    for step, before in boundaries(bucket, drive):
        objects = FakeObjects(before)
        objects.fail(step, fault)
        try:
            acknowledged = drive(objects)
        except StorageUnavailableError:
            acknowledged = []  # it could not even begin
        assert said(before) == past + acknowledged
        objects.land()
        assert said(before) == past + acknowledged
        follower, _, _ = begin(FakeObjects(before))
        for number in range(20):
            say(follower, f"then {number}")
        objects.land()
        assert said(before) == past + acknowledged + [f"then {number}" for number in range(20)]


def outcome(bucket: Bucket, id: str) -> str:
    """What is there of a checkpoint; whatever is offered must be whole."""
    store = RemoteCheckpoints(FakeObjects(bucket))
    listing = store.listing()
    if id in listing.committed:
        store.verify(id)
        return "committed"
    return "quarantined" if id in listing.quarantined else "none"


@pytest.mark.parametrize("fault", [*CRASHES, *SILENCES])
def test_a_commit_is_there_or_not_and_can_be_made_again(bucket: Bucket, fault: ObjectFault) -> None:
    def commit(objects: FakeObjects) -> None:
        manifest = upload(Bucket(), "checkpoint_000001")
        for path, data in FILES.items():
            objects.put(f"checkpoints/checkpoint_000001/{path}", data)
        RemoteCheckpoints(objects).commit(manifest)

    for step, before in boundaries(bucket, commit):
        objects = FakeObjects(before)
        objects.fail(step, fault)
        with pytest.raises((Crash, StorageUnavailableError)):
            commit(objects)
        if outcome(before, "checkpoint_000001") == "none":
            collector = RemoteCheckpoints(FakeObjects(copy(before)))
            collector.collect(collector.listing(), keep=[])
            assert collector.listing().directories == []
        commit(FakeObjects(before))
        objects.land()
        assert outcome(before, "checkpoint_000001") == "committed"


@pytest.mark.parametrize("fault", [*CRASHES, *SILENCES])
@pytest.mark.parametrize("operation", ["delete", "quarantine", "collect"])
@pytest.mark.parametrize("old", ["checkpoint_000001", "named"])
def test_what_is_removed_is_there_whole_or_not_offered(
    bucket: Bucket, fault: ObjectFault, operation: str, old: str
) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    begin_upload(FakeObjects(bucket), old)
    for id in (old, "other"):
        store.commit(upload(bucket, id))
    upload(bucket, "checkpoint_000009")

    def remove(objects: FakeObjects) -> None:
        store = RemoteCheckpoints(objects)
        if operation == "delete":
            store.delete(old)
        elif operation == "quarantine":
            store.quarantine(old, "why")
        else:
            store.collect(store.listing(), keep=["other"])

    expected = "quarantined" if operation == "quarantine" else "none"
    for step, before in boundaries(bucket, remove):
        objects = FakeObjects(before)
        objects.fail(step, fault)
        try:
            remove(objects)
        except (Crash, StorageUnavailableError):
            assert outcome(before, old) in ("committed", expected)
        else:
            assert outcome(before, old) == expected  # only the reason for a quarantine may be lost
        remove(FakeObjects(before))
        objects.land()
        assert outcome(before, old) == expected
        assert outcome(before, "other") == "committed"
        files = [key for key in before.content if key.startswith(f"checkpoints/{old}/")]
        assert len(files) == (len(FILES) if operation == "quarantine" else 0)


@pytest.mark.parametrize("fault", CRASHES)
def test_a_driver_that_dies_while_it_begins_or_ends_is_relieved(fault: ObjectFault) -> None:
    def drive(objects: FakeObjects, words: tuple[str, ...] = ("a",)) -> int:
        def claim(token: str) -> Opened:
            opened = RemoteJournal.open(objects, token)
            for word in words:
                say(opened[0], word)
            return opened

        lease = RemoteLease.acquire(objects, claim, on_lost=pytest.fail, renew_s=1000.0, wait=lambda _: None)
        try:
            lease.renew()
        finally:
            lease.release()
        return lease.epoch

    bucket = Bucket()
    drive(FakeObjects(bucket))
    for step, before in boundaries(bucket, drive):
        objects = FakeObjects(before)
        objects.fail(step, fault)
        with pytest.raises(Crash):
            drive(objects)
        # It is this same process, which lives: it knows that it has no lease any more.
        epoch = drive(FakeObjects(before), words=("b",))
        assert epoch in (2, 3)
        assert said(before)[-1] == "b"
