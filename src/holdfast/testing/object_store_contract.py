"""What every object store must do. A store's tests subclass ``ObjectStoreContract`` and define a fixture ``store``.

The store must be empty for each test. Set ``conditional_writes = False`` for a server that does not support conditional
writes; the store must detect that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import CheckpointDamagedError, ObjectExistsError, ObjectMissingError, StorageUnavailableError
from holdfast.store.objects import transfer
from holdfast.store.objects.base import ObjectInfo, ObjectStore

NAMES = ("plain", "with space", "a+b=c&d", "percent%20sign", "ümlaut", "dots...and-dashes_", "hash#tag", "x" * 200)


class ObjectStoreContract:
    """The tests that every object store must pass. Derive ``TestMyStore`` from it, and override the fixture ``store``
    with one that creates an empty store.

    ``conditional_writes`` says whether the store refuses to create an object that exists. ``races`` is how many writers
    try that in parallel.
    """

    conditional_writes = True
    closes = True  # whether a closed store refuses to continue
    races = 8

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError("give a fixture that makes an empty store")

    def test_what_is_put_is_read(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"content")
        assert store.get("a/b/c") == b"content"
        store.put("a/b/c", b"")
        assert store.get("a/b/c") == b""

    def test_what_is_not_there_is_missing(self, store: ObjectStore, tmp_path: Path) -> None:
        store.put("a/b", b"x")
        for call in (
            lambda: store.get("a/c"),
            lambda: store.get("a"),
            lambda: store.get_range("none", 0, 1),
            lambda: store.download("none", tmp_path / "file", 5),
            lambda: store.download("none", tmp_path / "file", transfer.PART_BYTES * 2),
        ):
            with pytest.raises(ObjectMissingError, match="does not exist"):
                call()
        assert not (tmp_path / "file").exists()

    @pytest.mark.parametrize("name", NAMES)
    def test_names_keep_every_character(self, store: ObjectStore, name: str) -> None:
        store.put(f"d/{name}", name.encode())
        assert store.get(f"d/{name}") == name.encode()
        assert [info.key for info in store.list("d/")] == [f"d/{name}"]
        assert [info.key for info in store.level("d/").objects] == [f"d/{name}"]
        store.delete([f"d/{name}"])
        assert store.list() == []

    def test_a_range_is_exactly_what_was_asked_for(self, store: ObjectStore) -> None:
        store.put("digits", b"0123456789")
        assert store.get_range("digits", 0, 10) == b"0123456789"
        assert store.get_range("digits", 3, 4) == b"3456"
        assert store.get_range("digits", 9, 1) == b"9"
        assert store.get_range("digits", 5, 0) == b""

    def test_a_range_beyond_the_end_is_an_error(self, store: ObjectStore) -> None:
        store.put("digits", b"0123456789")
        for start in (8, 80):
            with pytest.raises(CheckpointDamagedError, match="ends before"):
                store.get_range("digits", start, 4)

    def test_a_name_is_created_once(self, store: ObjectStore) -> None:
        store.create("d/token", b"first")
        with pytest.raises(ObjectExistsError, match="already"):
            store.create("d/token", b"second")
        assert store.get("d/token") == b"first"
        store.delete(["d/token"])
        store.create("d/token", b"third")
        assert store.get("d/token") == b"third"

    def test_creating_what_is_there_already_with_the_same_content_is_the_same_call(self, store: ObjectStore) -> None:
        store.create("token", b"mine")
        store.create("token", b"mine")

    def test_it_knows_whether_creating_is_safe(self, store: ObjectStore) -> None:
        assert store.creates_safely is self.conditional_writes
        assert store.list() == [], "the probe is removed"

    def test_one_of_many_creates(self, store: ObjectStore) -> None:
        if not self.conditional_writes:
            pytest.skip("the server decides nothing")
        start, won = threading.Barrier(self.races, timeout=30), []

        def create(number: int) -> None:
            start.wait()
            try:
                store.create("race", f"writer {number}".encode())
                won.append(number)
            except ObjectExistsError:
                pass

        _at_once([lambda number=number: create(number) for number in range(self.races)])  # type: ignore[misc]
        assert len(won) == 1
        assert store.get("race") == f"writer {won[0]}".encode()

    def test_lists_are_complete_and_by_key(self, store: ObjectStore) -> None:
        keys = [f"d/{number:04}" for number in range(30)]
        for key in reversed(keys):
            store.put(key, key.encode())
        store.put("d2/other", b"x")
        store.put("d/deep/er", b"xyz")
        assert [info.key for info in store.list("d/")] == sorted([*keys, "d/deep/er"])
        assert store.list("d/deep/") == [ObjectInfo("d/deep/er", 3)]
        assert [info.key for info in store.list()] == sorted([*keys, "d/deep/er", "d2/other"])
        assert store.list("none/") == []

    def test_a_level_shows_only_itself(self, store: ObjectStore) -> None:
        for key in ("top", "a/one", "a/two", "a/deep/three", "a/deep/er/four", "b/five"):
            store.put(key, b"12345")
        assert store.level() == ([ObjectInfo("top", 5)], ["a", "b"])
        assert store.level("a/") == ([ObjectInfo("a/one", 5), ObjectInfo("a/two", 5)], ["a/deep"])
        assert store.level("none/") == ([], [])

    def test_deleted_is_gone_and_gone_is_no_error(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "a/3", "b/1"):
            store.put(key, b"x")
        store.delete(["a/1", "none", "a/3", "not/here"])
        assert [info.key for info in store.list()] == ["a/2", "b/1"]
        store.delete([])
        store.delete(["none"])
        store.delete(["a/2"])
        assert store.level() == ([], ["b"])

    def test_a_thousand_and_more_are_listed_and_deleted(self, store: ObjectStore) -> None:
        keys = [f"many/{number:05}" for number in range(1100)]

        def put(start: int) -> None:
            for key in keys[start::4]:
                store.put(key, b"")

        _at_once([lambda start=start: put(start) for start in range(4)])  # type: ignore[misc]
        assert [info.key for info in store.list("many/")] == keys
        assert len(store.level("many/").objects) == 1100
        store.delete(keys)
        assert store.list() == []

    @pytest.mark.parametrize("size", [0, 1, transfer.PART_BYTES, transfer.PART_BYTES * 2 + 12345])
    def test_a_file_goes_there_and_back(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(os.urandom(size))
        store.upload(source, "d/file")
        assert store.list("d/") == [ObjectInfo("d/file", size)]
        store.download("d/file", target, size)
        assert target.read_bytes() == source.read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]

    def test_an_upload_replaces(self, store: ObjectStore, tmp_path: Path) -> None:
        source = tmp_path / "source"
        for content in (b"old" * 1000, b"new"):
            source.write_bytes(content)
            store.upload(source, "file")
        assert store.get("file") == b"new"

    @pytest.mark.parametrize("size", [10, transfer.PART_BYTES + 10])
    def test_another_size_is_damage(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        source = tmp_path / "source"
        source.write_bytes(bytes(size))
        store.upload(source, "file")
        for wrong in (size - 1, size + 1, size + 3 * transfer.PART_BYTES):
            with pytest.raises(CheckpointDamagedError, match=f"has {size} bytes"):
                store.download("file", tmp_path / "target", wrong)
        assert not (tmp_path / "target").exists()

    def test_threads_share_it(self, store: ObjectStore) -> None:
        def work(number: int) -> None:
            for step in range(5):
                store.put(f"{number}/{step}", str(number).encode())
                assert store.get(f"{number}/{step}") == str(number).encode()

        _at_once([lambda number=number: work(number) for number in range(4)])  # type: ignore[misc]
        assert len(store.list()) == 20

    def test_another_patience_is_the_same_store(self, store: ObjectStore) -> None:
        store.put("a", b"x")
        assert store.with_patience(5.0).get("a") == b"x"
        assert store.with_patience(5.0).url == store.url

    def test_a_closed_store_refuses(self, store: ObjectStore) -> None:
        if not self.closes:
            pytest.skip("there is nothing to wait for")
        store.close()
        with pytest.raises(StorageUnavailableError, match="closed"):
            store.get("a")


def _at_once(calls: list[Callable[[], object]]) -> None:
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
