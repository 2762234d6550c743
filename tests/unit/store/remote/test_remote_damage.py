"""Damage in the store: every intact record is kept, the rest is named, and no driver is let in that should be out."""

from __future__ import annotations

import random

import pytest

from holdfast.errors import RunInUseError
from holdfast.store.remote import sequence
from holdfast.store.remote.remote_journal import read
from holdfast.testing.fake_objects import Bucket, FakeObjects
from support.object_stores.drivers import begin, say


def make_journal(bucket: Bucket, epochs: int, words: int) -> None:
    for epoch in range(epochs):
        driver, _, _ = begin(FakeObjects(bucket))
        for number in range(words):
            say(driver, f"{epoch}-{number}", f"{epoch}-{number} too")


def objects_that_count(bucket: Bucket) -> list[str]:
    return [entry.key for entry in sequence.read(FakeObjects(bucket)).entries]


@pytest.mark.parametrize(("epochs", "words"), [(1, 3), (2, 9), (3, 20)])
def test_a_flipped_bit_anywhere_in_the_journal_is_named_and_costs_one_record(
    bucket: Bucket, epochs: int, words: int
) -> None:
    make_journal(bucket, epochs, words)
    whole = dict(bucket.content)
    keys, records = objects_that_count(bucket), read(FakeObjects(bucket))[0]
    chance = random.Random(epochs)
    for _ in range(100):
        key = chance.choice(keys)
        bucket.flip(key, chance.randrange(8 * len(whole[key])))
        found, damage = read(FakeObjects(bucket))
        assert any(one.path == key for one in damage)
        assert len(found) >= len(records) - 1
        assert all(record in records for record in found)
        driver, again, _ = begin(FakeObjects(bucket))
        assert again == found
        assert driver.epoch > epochs
        for number in range(20):
            say(driver, f"later {number}")
        later, damage = read(FakeObjects(bucket))
        assert [record for record in later if record in records] == found
        assert [record.kind for record in later[-20:]] == [f"later {number}" for number in range(20)]
        bucket.content.clear()
        bucket.content.update(whole)


@pytest.mark.parametrize("words", [1, 20])
def test_a_driver_that_was_relieved_stays_out_when_the_claim_is_damaged(bucket: Bucket, words: int) -> None:
    old, _, _ = begin(FakeObjects(bucket))
    say(old, "a")
    new, _, _ = begin(FakeObjects(bucket))
    for _ in range(words):
        say(new, "b")
    for key in list(bucket.content):
        if key.startswith(("journal/00000003", "claims/000002")):
            bucket.flip(key, 80)
    with pytest.raises(RunInUseError, match="taken over by another process"):
        say(old, "never")


def test_lost_objects_are_named(bucket: Bucket) -> None:
    make_journal(bucket, 1, 6)
    keys = objects_that_count(bucket)
    del bucket.content[keys[2]], bucket.content[keys[4]]
    records, damage = read(FakeObjects(bucket))
    assert [record.seq for record in records] == [1, 2, 3, 6, 7, 10, 11, 12, 13]
    assert [one.what for one in damage] == ["records 4 to 5 are missing", "records 8 to 9 are missing"]


def test_a_damaged_journal_is_merged_but_nothing_of_it_is_removed(bucket: Bucket) -> None:
    make_journal(bucket, 1, 9)
    key = objects_that_count(bucket)[4]
    bucket.flip(key, 8 * (len(bucket.content[key]) - 20))
    before = {key: data for key, data in bucket.content.items() if key.startswith("journal/")}
    driver, found, damage = begin(FakeObjects(bucket))
    assert damage
    for _ in range(40):
        say(driver, "more")
    assert {key: bucket.content.get(key) for key in before} == before
    records, damage = read(FakeObjects(bucket))
    assert records[: len(found)] == found
    assert [one.where for one in damage] == ["record 10"]  # the gap stays named


def test_what_is_no_part_of_the_journal_is_let_lie(bucket: Bucket) -> None:
    bucket.content["journal/notes.txt"] = b"x"
    bucket.content["journal/00000001.jsonl.bak"] = b"x"
    make_journal(bucket, 1, 2)
    assert read(FakeObjects(bucket))[1] == []


def test_a_merge_that_did_not_arrive_whole_replaces_nothing_and_is_made_good_by_the_next(bucket: Bucket) -> None:
    objects = FakeObjects(bucket)
    driver, _, _ = begin(objects)
    for number in range(14):
        say(driver, f"{number}")
    before = {key: data for key, data in bucket.content.items() if key.startswith("journal/")}

    def damage(_step: int, kind: str, key: str) -> None:
        if kind == "get":
            bucket.flip(key, 8 * (len(bucket.content[key]) - 20))

    objects.before = damage
    say(driver, "14")
    objects.before = None
    assert {key: bucket.content.get(key) for key in before} == before
    for number in range(15, 30):
        say(driver, f"{number}")
    records, damages = read(FakeObjects(bucket))
    assert damages == []
    assert [record.kind for record in records[1:]] == [f"{number}" for number in range(30)]


def test_an_epoch_whose_claim_is_wholly_damaged_is_not_used_again() -> None:
    bucket = Bucket()
    make_journal(bucket, 1, 1)
    begin(FakeObjects(bucket))
    claim = objects_that_count(bucket)[-1]
    for line_end in (30, len(bucket.content[claim]) - 20):
        bucket.flip(claim, 8 * line_end)
    driver, _, damage = begin(FakeObjects(bucket))
    assert (driver.epoch, len(damage)) == (3, 2)
