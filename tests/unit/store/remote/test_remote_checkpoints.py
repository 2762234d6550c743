from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import CheckpointDamagedError, NotARunError, StorageError, StorageUnavailableError
from holdfast.store.manifests import Manifest
from holdfast.store.remote import remote_checkpoints as module
from holdfast.store.remote import remote_runfile
from holdfast.store.remote.remote_checkpoints import Listing, RemoteCheckpoints, begin_upload
from holdfast.testing.fake_objects import Bucket, FakeObjects, ObjectFault
from support.object_stores.uploads import upload


def test_a_commit_is_one_request_and_makes_it_readable(bucket: Bucket) -> None:
    objects = FakeObjects(bucket)
    store = RemoteCheckpoints(objects)
    manifest = upload(bucket, "one")
    assert store.listing() == Listing([], [], ["one"])
    objects.counts.clear()
    done = store.commit(manifest)
    assert objects.counts == {"create": 1}
    assert store.read_manifest("one") == done == replace(manifest, format=1)
    assert store.listing() == Listing(["one"], [], ["one"])
    assert store.verify("one") == done


def test_a_commit_whose_reply_was_lost_can_be_tried_again(bucket: Bucket) -> None:
    objects = FakeObjects(bucket)
    store = RemoteCheckpoints(objects)
    manifest = upload(bucket, "one")
    objects.fail(objects.steps + (0 if bucket.creates_safely else 1), ObjectFault.LOST_REPLY)
    with pytest.raises(StorageUnavailableError):
        store.commit(manifest)
    assert store.commit(manifest) == store.read_manifest("one")
    with pytest.raises(StorageError, match="committed already"):
        store.commit(replace(manifest, created=2.5))


def test_the_commit_of_a_dead_driver_that_lands_before_the_next_ones_counts(bucket: Bucket) -> None:
    manifest = upload(bucket, "one")
    late = RemoteCheckpoints(FakeObjects(bucket)).commit(replace(manifest, epoch=1))
    assert RemoteCheckpoints(FakeObjects(bucket)).commit(replace(manifest, epoch=2)) == late


@pytest.mark.parametrize("size", [4096, 10, 1])
def test_verifying_reads_by_ranges(bucket: Bucket, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RANGE", size)
    store = RemoteCheckpoints(FakeObjects(bucket))
    store.commit(upload(bucket, "one", {"a": bytes(range(250)), "b": b"", "c": b"x" * 101, "d": b"y"}))
    store.verify("one")
    bucket.flip("checkpoints/one/c", 8 * 100 + 3)
    with pytest.raises(CheckpointDamagedError, match="one is damaged: c has other content than was committed"):
        store.verify("one")


def test_what_differs_is_named(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    store.commit(upload(bucket, "one"))
    bucket.content["checkpoints/one/more"] = b"x"
    bucket.content["checkpoints/one/empty"] = b"x"
    del bucket.content["checkpoints/one/shards/0.bin"]
    with pytest.raises(CheckpointDamagedError) as caught:
        store.verify("one")
    for text in ("shards/0.bin is missing", "empty has 1 bytes instead of 0", "more does not belong to it"):
        assert text in str(caught.value)


def test_a_file_that_goes_while_it_is_read_is_missing(bucket: Bucket) -> None:
    objects = FakeObjects(bucket)
    store = RemoteCheckpoints(objects)
    store.commit(upload(bucket, "one", {"a": b"x"}))

    def remove(_step: int, kind: str, key: str) -> None:
        if kind == "get" and key.endswith("/a"):
            bucket.content.pop(key, None)

    objects.before = remove
    with pytest.raises(CheckpointDamagedError, match="a is missing"):
        store.verify("one")


def test_a_quarantined_checkpoint_keeps_its_files_and_the_reason(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    store.commit(upload(bucket, "one"))
    before = bucket.content["checkpoints/one.json"]
    for _ in range(2):
        store.quarantine("one", "a digest differs")
        assert store.listing() == Listing([], ["one"], ["one"])
        assert bucket.content["checkpoints/one.json.damaged"] == before
        assert bucket.content["checkpoints/one.json.damaged.txt"] == b"a digest differs\n"
        assert store.collect(store.listing(), []) == []
    store.delete("one")
    assert store.listing() == Listing([], [], [])
    store.quarantine("two", "it is gone")
    assert store.listing() == Listing([], ["two"], [])


def test_only_what_is_not_kept_is_collected(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    for id in ("good", "late", "bad"):
        store.commit(upload(bucket, id))
    upload(bucket, "checkpoint_000007-g2")
    upload(bucket, "leftover")
    upload(bucket, "under way")
    for id in ("checkpoint_000007-g2", "leftover", "no file yet", "under way"):
        begin_upload(FakeObjects(bucket), id)
    assert "checkpoints/.checkpoint_000007-g2.ours" not in bucket.content
    upload(bucket, "best")
    store.quarantine("aside", "why")
    bucket.flip("checkpoints/bad.json", 99)
    listing = store.listing()
    store.commit(upload(bucket, "meanwhile"))
    assert store.collect(listing, keep={"good", "under way"}) == [
        "bad",
        "checkpoint_000007-g2",
        "late",
        "leftover",
        "no file yet",
    ]
    kept = ["bad", "best", "good", "meanwhile", "under way"]
    assert store.listing() == Listing(["good", "meanwhile"], ["aside", "bad"], kept, ("under way",))
    store.delete("under way")
    assert store.listing().marked == ()


def test_what_was_deleted_since_it_was_listed_is_not_damaged(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    store.commit(upload(bucket, "retired"))
    listing = store.listing()
    store.delete("retired")
    store.collect(listing, keep=[])
    assert store.listing() == Listing([], [], [])


def test_what_the_last_driver_could_not_journal_counts_and_what_landed_late_does_not(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    for id, epoch, report in (("known", 1, 0), ("late", 1, 1), ("second", 2, 3), ("first", 2, 2), ("bad", 2, 4)):
        store.commit(upload(bucket, id, epoch=epoch, report=report))
    bucket.flip("checkpoints/bad.json", 99)
    manifests, damage = store.unknown(store.listing(), {"known"}, lambda manifest: manifest.epoch >= 2)
    assert [manifest.id for manifest in manifests] == ["first", "second"]
    assert [one.path for one in damage] == ["checkpoints/bad.json"]
    manifests, _ = store.unknown(store.listing(), {"known"}, lambda _: True)
    assert [manifest.id for manifest in manifests] == ["late", "first", "second"]


def test_a_thousand_known_checkpoints_cost_no_more_than_ten(bucket: Bucket) -> None:
    cost = {}
    for total in (10, 450):
        store = RemoteCheckpoints(FakeObjects(bucket))
        ids = [f"{number:04d}" for number in range(total)]
        for id in ids:
            if id not in store.listing().committed:
                store.commit(upload(bucket, id, {"a": b"a"}))
        objects = FakeObjects(bucket)
        store = RemoteCheckpoints(objects)
        listing = store.listing()
        assert [m.id for m in store.unknown(listing, set(ids[1:]), lambda _: True)[0]] == ids[:1]
        assert store.collect(listing, ids) == []
        cost[total] = objects.counts
    assert cost[450] == cost[10] == {"list": 1, "get": 1}


def test_a_flipped_bit_anywhere_is_caught(bucket: Bucket) -> None:
    store = RemoteCheckpoints(FakeObjects(bucket))
    store.commit(upload(bucket, "one"))
    whole = dict(bucket.content)
    random_bits = random.Random(0)
    keys = [key for key in whole if whole[key]]
    for _ in range(100):
        key = random_bits.choice(keys)
        bucket.flip(key, random_bits.randrange(8 * len(whole[key])))
        with pytest.raises(CheckpointDamagedError):
            store.verify("one")
        bucket.content.update(whole)
    store.verify("one")


def test_a_manifest_of_the_first_format_has_no_epoch() -> None:
    fields = msgspec.to_builtins(Manifest(1, "a", 1, 0, 0, 1, 0.0, None, []))
    del fields["epoch"]
    assert msgspec.convert(fields, Manifest).epoch == 0


def test_run_json_comes_back_or_says_what_is_wrong(bucket: Bucket) -> None:
    objects = FakeObjects(bucket)
    with pytest.raises(NotARunError, match="memory://bucket/runs/run is not a Holdfast run"):
        remote_runfile.read(objects)
    remote_runfile.write(objects, {"name": "run", "config": {1: float("nan")}})
    remote_runfile.write(objects, {"name": "run", "config": {1: b"x"}})
    assert remote_runfile.read(objects) == {"name": "run", "config": {1: b"x"}}
    for bit in range(0, 8 * len(bucket.content["run.json"]), 7):
        bucket.flip("run.json", bit)
        with pytest.raises(StorageError, match=r"runs/run/run\.json is damaged"):
            remote_runfile.read(objects)
        bucket.flip("run.json", bit)
