from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.errors import StorageUnavailableError
from holdfast.store.remote.parts import PartUploader, fetch, files_of
from holdfast.testing.fake_objects import Bucket, FakeObjects, ObjectFault

KEY = "metrics/attempt-0001/rank-0.jsonl"


@pytest.mark.parametrize("part_size", [1, 10, 64, 1 << 20])
def test_a_growing_file_is_there_as_of_the_last_sync(tmp_path: Path, part_size: int) -> None:
    path, objects, chance = tmp_path / "rank-0.jsonl", FakeObjects(), random.Random(part_size)
    uploader = PartUploader(objects, KEY, path, part_size)
    written = b""
    path.write_bytes(written)
    for _ in range(30):
        more = chance.randbytes(chance.choice((0, 1, 9, 10, 11, 100)))
        written += more
        with open(path, "ab") as file:
            file.write(more)
        uploader.sync()
        assert fetch(objects, KEY) == written
    assert all(len(data) <= part_size for data in objects.bucket.content.values())


def test_nothing_new_costs_no_request(tmp_path: Path) -> None:
    path, objects = tmp_path / "rank-0.jsonl", FakeObjects()
    path.write_bytes(b"x" * 20)
    uploader = PartUploader(objects, KEY, path, 10)
    uploader.sync()
    uploader.sync()
    assert objects.counts == {"put": 2}
    with open(path, "ab") as file:
        file.write(b"y")
    uploader.sync()
    assert objects.counts == {"put": 3}
    assert sorted(objects.bucket.content) == [KEY, f"{KEY}.1", f"{KEY}.2"]


@pytest.mark.parametrize("fault", [ObjectFault.REFUSED, ObjectFault.LOST_REPLY])
def test_a_sync_that_failed_is_made_good_by_the_next(tmp_path: Path, fault: ObjectFault) -> None:
    path, objects = tmp_path / "rank-0.jsonl", FakeObjects()
    uploader = PartUploader(objects, KEY, path, 10)
    path.write_bytes(b"x" * 25)
    objects.fail(1, fault)
    with pytest.raises(StorageUnavailableError):
        uploader.sync()
    uploader.sync()
    assert fetch(objects, KEY) == b"x" * 25


def test_a_new_process_goes_on_with_the_same_file(tmp_path: Path) -> None:
    path, objects = tmp_path / "rank-0.jsonl", FakeObjects()
    path.write_bytes(b"x" * 25)
    PartUploader(objects, KEY, path, 10).sync()
    with open(path, "ab") as file:
        file.write(b"y" * 10)
    PartUploader(objects, KEY, path, 10).sync()
    assert fetch(objects, KEY) == b"x" * 25 + b"y" * 10


def test_parts_are_told_from_files_that_look_like_them() -> None:
    names = ["a/x.log", "a/x.log.2", "a/x.log.10", "a/x.log.1", "a/y.7", "a/x.log.01", "b"]
    assert files_of(names) == {
        "a/x.log": ["a/x.log", "a/x.log.1", "a/x.log.2", "a/x.log.10"],
        "a/x.log.01": ["a/x.log.01"],
        "a/y.7": ["a/y.7"],
        "b": ["b"],
    }
    assert fetch(FakeObjects(Bucket({"other": b"x"})), KEY) == b""
