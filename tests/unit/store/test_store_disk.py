from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError, StorageFullError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk, ensure_dir, is_temporary, write_atomic
from holdfast.store.journal import JournalFile, read
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard


def test_write_atomic_replaces_the_whole_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"", b"second" * 1000):
        write_atomic(Disk(), path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_write_atomic_that_fails_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    class Full(Disk):
        def rename(self, *_paths: Path) -> None:
            raise StorageFullError("no")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(StorageFullError):
        write_atomic(Full(), path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_write_atomic_leaves_in_a_crash_is_known_as_temporary(tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    class Crashing(Disk):
        def rename(self, *_paths: Path) -> None:
            raise Died

    with pytest.raises(Died):
        write_atomic(Crashing(), tmp_path / "file", b"new")
    (name,) = os.listdir(tmp_path)
    assert is_temporary(name)
    assert not is_temporary("file")


def test_files_are_only_ever_created_new(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "file"
    disk.write_new(path, b"x")
    with pytest.raises(FileExistsError):
        disk.write_new(path, b"y")
    with pytest.raises(FileExistsError):
        disk.open_append(path, new=True)
    with pytest.raises(FileExistsError):
        disk.copy_file(path, path)
    assert path.read_bytes() == b"x"


def test_what_is_said_to_be_durable_is_synced_after_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []  # the size of each file when it is synced
    monkeypatch.setattr("holdfast.store.disk._flush", lambda fd: synced.append(os.fstat(fd).st_size))
    disk, path = Disk(), tmp_path / "file"
    disk.write_new(path, b"12345")
    disk.fsync_file(path)
    disk.copy_file(path, tmp_path / "copy")
    disk.copy_file(path, tmp_path / "quick", sync=False)
    with disk.open_append(path, new=False) as file:
        disk.append(file, b"67")
        disk.sync(file)
        disk.truncate(file, 3)
    with disk.open_in_place(path) as file:
        disk.overwrite(file, b"x")
    assert synced == [5, 5, 5, 7, 3, 1]
    disk.fsync_dir(tmp_path)
    assert len(synced) == 7


@pytest.mark.parametrize("size", [0, 1, (4 << 20) + 1])
def test_copies_are_the_same(size: int, tmp_path: Path) -> None:
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    Disk().copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == content


def test_copies_work_where_the_kernel_offers_no_short_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr("os.copy_file_range", refuse, raising=False)
    test_copies_are_the_same((4 << 20) + 1, tmp_path)


def test_a_copy_goes_on_where_the_kernel_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(os, "copy_file_range", None)
    if original is None:
        pytest.skip("this system has no copy_file_range")
    calls = []

    def once(source: int, target: int, _count: int) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(22, "no more")
        return int(original(source, target, 1000))

    monkeypatch.setattr("os.copy_file_range", once)
    test_copies_are_the_same((4 << 20) + 1, tmp_path)


def test_ensure_dir_makes_every_new_name_durable(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Recording(Disk):
        def fsync_dir(self, path: Path) -> None:
            synced.append(path)

    disk = Recording()
    ensure_dir(disk, tmp_path / "a" / "b")
    ensure_dir(disk, tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_a_full_device_is_a_storage_full_error_with_path_and_remedy() -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this system has no /dev/full")
    with (
        Disk().open_append(device, new=False) as file,
        pytest.raises(StorageFullError, match=r"/dev/full.*num_to_keep"),
    ):
        Disk().append(file, b"x")


def test_other_failures_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Could not create the directory .*file/below"):
        Disk().makedirs(tmp_path / "file" / "below")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "tiny"
    path.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True, timeout=20
        )
    except FileNotFoundError:
        pytest.skip("this system has no mount command")
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    yield path
    subprocess.run(["umount", str(path)], check=True, timeout=20)


def test_a_real_full_file_system_hurts_nothing_that_was_committed(tiny: Path, tmp_path: Path) -> None:
    layout = RunLayout(tiny / "run")
    store = CheckpointStore(layout)
    source = tmp_path / "source"
    source.mkdir()

    def commit(id: str, report: int, size: int) -> None:
        (source / "model.pt").write_bytes(os.urandom(size))
        target = layout.shard_dir(1, report, 0)
        store.stage(source, target, move=True)
        shard = Shard(0, str(target), store.seal(target))
        store.commit(Manifest(0, id, 1, report, report, 1, 0.0, {}, []), [shard])

    journal, _, _ = JournalFile.open(layout, 1)
    commit("one", 0, 300_000)
    journal.append([("committed", {"id": "one"})], 1.0)
    with pytest.raises(StorageFullError):
        commit("two", 1, 900_000)
    assert not layout.shard_dir(1, 1, 0).exists(), "a failed copy gives its space back"
    assert (source / "model.pt").stat().st_size == 900_000, "and the user's file stays"
    filler = [("filler", {"text": "x" * 30_000})] * 10
    journal.append(filler, 2.0)
    for _ in range(2):
        with pytest.raises(StorageFullError):
            journal.append(filler * 3, 2.0)
    assert [manifest.id for manifest in store.scan()[0]] == ["one"]
    store.verify("one")
    store.delete("one")
    journal.append([("freed", {})], 3.0)
    journal.close()
    records, damage = read(layout)
    assert damage == []
    assert [records[0].kind, records[-1].kind] == ["committed", "freed"]
    commit("three", 2, 100_000)
    store.verify("three")
