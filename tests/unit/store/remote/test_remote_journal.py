from __future__ import annotations

import threading

import pytest

from holdfast.errors import RunInUseError, StorageUnavailableError
from holdfast.store.remote.remote_journal import read
from holdfast.testing.fake_objects import Bucket, FakeObjects, ObjectFault
from support.object_stores.drivers import begin, said, say


def test_records_come_back_in_order_over_all_epochs(bucket: Bucket) -> None:
    assert read(FakeObjects(bucket)) == ([], [])
    first, records, damage = begin(FakeObjects(bucket))
    assert (first.epoch, records, damage) == (1, [], [])
    say(first, "a", "b")
    say(first, "c")
    say(first)
    first.close()
    second, records, damage = begin(FakeObjects(bucket))
    assert (second.epoch, damage) == (2, [])
    assert [record.kind for record in records] == ["EpochBegan", "a", "b", "c"]
    assert records[1].body == {"said": "a"}
    say(second, "d")
    assert said(bucket) == ["a", "b", "c", "d"]


def test_a_driver_that_was_relieved_is_told_by_whom_and_writes_no_more(bucket: Bucket) -> None:
    old, _, _ = begin(FakeObjects(bucket))
    say(old, "a")
    new, _, _ = begin(FakeObjects(bucket))
    for _ in range(2):
        with pytest.raises(RunInUseError, match=r"taken over by process \d+ on .+ \(epoch 2\); this driver .+ epoch 1"):
            say(old, "never")
    say(new, "b")
    assert said(bucket) == ["a", "b"]


@pytest.mark.parametrize("appends", [1, 15, 16, 40, 300])
def test_merging_changes_nothing_for_readers(bucket: Bucket, appends: int) -> None:
    journal, _, _ = begin(FakeObjects(bucket))
    for number in range(appends):
        say(journal, f"{number}")
    assert said(bucket) == [f"{number}" for number in range(appends)]
    new, records, _ = begin(FakeObjects(bucket))
    assert len(records) == appends + 1
    for number in range(appends):
        say(new, f"again {number}")
    assert len(said(bucket)) == 2 * appends
    with pytest.raises(RunInUseError):
        say(journal, "never")


@pytest.mark.parametrize("size", [10, 50_000, 300_000])
def test_long_records_are_merged_seldom_and_come_back(bucket: Bucket, size: int) -> None:
    objects = FakeObjects(bucket)
    journal, _, _ = begin(objects)
    for number in range(60):
        journal.append([("long", {"number": number, "text": "x" * size})], 1.0)
    records, damage = read(FakeObjects(bucket))
    assert damage == []
    assert [record.body["number"] for record in records[1:]] == list(range(60))


@pytest.mark.parametrize("epochs", [1, 10])
def test_opening_costs_the_same_however_long_the_history_is(bucket: Bucket, epochs: int) -> None:
    cost: dict[int, int] = {}
    for appends in (10, 990):
        for _ in range(epochs):
            journal, _, _ = begin(FakeObjects(bucket))
            for _ in range(appends // epochs):
                say(journal, "a")
        objects = FakeObjects(bucket)
        begin(objects)
        cost[appends] = objects.counts.total() - objects.counts["get"]
        assert objects.counts["get"] <= 2 * 24
    assert cost[990] == cost[10]


def test_hundreds_of_epochs_cost_few_requests_too(bucket: Bucket) -> None:
    for _ in range(200):
        journal, _, _ = begin(FakeObjects(bucket))
        say(journal, "a")
    objects = FakeObjects(bucket)
    begin(objects)
    assert objects.counts["get"] <= 2 * 48
    assert len(said(bucket)) == 200


@pytest.mark.parametrize("fault", [ObjectFault.REFUSED, ObjectFault.LOST_REPLY, ObjectFault.DELAYED])
@pytest.mark.parametrize("before", range(20))
def test_an_append_that_failed_counts_neither_then_nor_later(bucket: Bucket, fault: ObjectFault, before: int) -> None:
    objects = FakeObjects(bucket)
    journal, _, _ = begin(objects)
    for number in range(before):
        say(journal, f"{number}")
    look = 0 if bucket.creates_safely else 1
    objects.fail(objects.steps + look, fault)
    with pytest.raises(StorageUnavailableError):
        say(journal, "refused", "refused too")
    say(journal, "kept")
    objects.land()
    expected = [*(f"{number}" for number in range(before)), "kept"]
    assert said(bucket) == expected
    for number in range(20):
        say(journal, f"later {number}")
    objects.land()
    assert said(bucket) == expected + [f"later {number}" for number in range(20)]
    begin(FakeObjects(bucket))


@pytest.mark.parametrize("fault", [ObjectFault.REFUSED, ObjectFault.LOST_REPLY, ObjectFault.DELAYED])
def test_the_same_append_tried_again_is_there_once(bucket: Bucket, fault: ObjectFault) -> None:
    objects = FakeObjects(bucket)
    journal, _, _ = begin(objects)
    objects.fail(objects.steps + (0 if bucket.creates_safely else 1), fault)
    with pytest.raises(StorageUnavailableError):
        say(journal, "a")
    say(journal, "a")
    objects.land()
    say(journal, "b")
    assert said(bucket) == ["a", "b"]


def test_what_a_relieved_driver_sent_long_ago_does_not_count(bucket: Bucket) -> None:
    stale = FakeObjects(bucket)
    old, _, _ = begin(stale)
    say(old, "a")
    stale.fail(stale.steps + (0 if bucket.creates_safely else 1), ObjectFault.DELAYED)
    with pytest.raises(StorageUnavailableError):
        say(old, "late")
    new, _, _ = begin(FakeObjects(bucket))
    say(new, "b")
    stale.land()
    assert said(bucket) == ["a", "b"]
    with pytest.raises(RunInUseError):
        say(old, "never")
    for number in range(40):
        say(new, f"{number}")
    stale.land()
    with pytest.raises(RunInUseError):
        say(old, "never")
    assert "never" not in said(bucket)


@pytest.mark.parametrize("later", [0, 5, 40, 400])
def test_a_driver_whose_last_append_landed_unknown_to_it_stays_out(bucket: Bucket, later: int) -> None:
    stale = FakeObjects(bucket)
    old, _, _ = begin(stale)
    say(old, "a")
    stale.fail(stale.steps + (0 if bucket.creates_safely else 1), ObjectFault.LOST_REPLY)
    with pytest.raises(StorageUnavailableError):
        say(old, "x" * 5000)
    new, records, _ = begin(FakeObjects(bucket))
    assert records[-1].kind == "x" * 5000
    for number in range(later):
        say(new, f"{number}")
    with pytest.raises(RunInUseError):
        say(old, "something else")
    assert said(bucket) == ["a", "x" * 5000, *(f"{number}" for number in range(later))]


def test_the_loser_of_a_race_to_begin_is_told_who_won() -> None:
    bucket = Bucket()
    slow = FakeObjects(bucket)
    winner = []

    def overtake(_step: int, kind: str, _key: str) -> None:
        if kind == "create" and not winner:
            winner.append(begin(FakeObjects(bucket))[0])

    slow.before = overtake
    with pytest.raises(RunInUseError, match=r"started by process \d+ on .+ \(epoch 1\)"):
        begin(slow)
    say(winner[0], "a")
    assert said(bucket) == ["a"]


def test_relieving_a_driver_that_still_writes_takes_its_last_append_along() -> None:
    bucket = Bucket()
    old, _, _ = begin(FakeObjects(bucket))
    newcomer = FakeObjects(bucket)
    left = ["b", "a"]

    def write_first(_step: int, kind: str, _key: str) -> None:
        if kind == "create" and left:
            say(old, left.pop())

    newcomer.before = write_first
    _, records, _ = begin(newcomer)
    assert [record.kind for record in records] == ["EpochBegan", "a", "b"]
    with pytest.raises(RunInUseError):
        say(old, "c")


def test_reading_beside_a_writer_that_merges_finds_all() -> None:
    bucket = Bucket()
    journal, _, _ = begin(FakeObjects(bucket))
    for number in range(14):
        say(journal, f"{number}")
    reader = FakeObjects(bucket)
    more, lock = list(range(14, 18)), threading.Lock()

    def write(_step: int, kind: str, _key: str) -> None:
        with lock:
            while kind == "get" and more:
                say(journal, f"{more.pop(0)}")

    reader.before = write
    records, damage = read(reader)
    assert damage == []
    assert [record.kind for record in records[1:]] == [f"{number}" for number in range(18)]
