from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import xxhash

from holdfast.errors import StorageError, StorageFullError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import FileEntry, Manifest, Shard
from support.store.faulty_disk import FullDisk
from support.store.sample_files import FILES, content, fill


@pytest.fixture
def store(layout: RunLayout) -> CheckpointStore:
    return CheckpointStore(layout)


@pytest.fixture(autouse=True)
def _run_directory(layout: RunLayout) -> None:
    layout.root.mkdir(parents=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fill(tmp_path / "source", FILES)


def test_staging_by_move_empties_the_source_and_keeps_it(
    store: CheckpointStore, layout: RunLayout, source: Path
) -> None:
    inode = (source / "model.pt").stat().st_ino
    target = layout.shard_dir(1, 0, 0)
    store.stage(source, target, move=True)
    assert content(target) == FILES
    assert (target / "model.pt").stat().st_ino == inode, "moved, not copied"
    assert os.listdir(source) == []


def test_nothing_is_staged_where_the_run_has_been_moved_away(
    store: CheckpointStore, layout: RunLayout, source: Path
) -> None:
    layout.root.rename(layout.root.with_name("moved"))
    with pytest.raises(StorageError, match="was moved or removed"):
        store.stage(source, layout.shard_dir(1, 0, 0), move=True)
    assert not layout.root.exists()
    assert content(source) == FILES


def test_staging_by_copy_leaves_the_source(store: CheckpointStore, layout: RunLayout, source: Path) -> None:
    target = layout.shard_dir(1, 0, 0)
    store.stage(source, target, move=False)
    assert content(target) == content(source) == FILES


def test_staging_from_another_file_system_copies(layout: RunLayout, source: Path) -> None:
    class Far(Disk):
        def rename(self, *_paths: Path) -> None:
            raise OSError(18, "Invalid cross-device link")

    target = layout.shard_dir(1, 0, 0)
    CheckpointStore(layout, Far()).stage(source, target, move=True)
    assert content(target) == content(source) == FILES


def test_a_committed_checkpoint_is_never_moved_away(store: CheckpointStore, layout: RunLayout) -> None:
    first = fill(layout.shard_dir(1, 0, 0), FILES)
    store.commit(Manifest(0, "one", 1, 0, 0, 1, 1.5, {}, []), [Shard(0, str(first), store.seal(first))])
    target = layout.shard_dir(1, 1, 0)
    store.stage(layout.checkpoint_dir("one"), target, move=True)
    assert content(target) == FILES
    store.verify("one")


@pytest.mark.parametrize("move", [True, False])
def test_links_are_followed_so_that_nothing_points_outside(
    store: CheckpointStore, layout: RunLayout, source: Path, tmp_path: Path, move: bool
) -> None:
    fill(tmp_path / "outside", {"big": b"linked", "dir/inner": b"inner"})
    (source / "file-link").symlink_to(tmp_path / "outside" / "big")
    (source / "optim" / "dir-link").symlink_to(tmp_path / "outside" / "dir")
    target = layout.shard_dir(1, 0, 0)
    store.stage(source, target, move)
    assert content(target) == FILES | {"file-link": b"linked", "optim/dir-link/inner": b"inner"}
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert (tmp_path / "outside" / "big").exists()


def test_a_file_with_a_second_name_is_copied(store: CheckpointStore, layout: RunLayout, source: Path) -> None:
    other = source.with_name("latest.pt")
    os.link(source / "model.pt", other)
    target = layout.shard_dir(1, 0, 0)
    store.stage(source, target, move=True)
    other.write_bytes(b"changed later")
    assert content(target) == FILES


@pytest.mark.parametrize("kind", ["fifo", "socket", "dangling", "loop", "name"])
def test_what_no_checkpoint_can_hold_is_refused_before_anything_moves(
    store: CheckpointStore, layout: RunLayout, source: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = source / "optim" / "bad"
    if kind == "fifo":
        os.mkfifo(bad)
    elif kind == "socket":
        monkeypatch.chdir(bad.parent)  # a socket's name must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("bad")
    elif kind == "name":
        Path(os.fsdecode(os.fsencode(bad) + b"\xff")).touch()
    elif kind == "dangling":
        bad.symlink_to("nowhere")
    else:
        bad.symlink_to(source)
    before = os.listdir(source)
    with pytest.raises(StorageError, match=r"optim/bad.? cannot be part of a checkpoint"):
        store.stage(source, layout.shard_dir(1, 0, 0), move=True)
    assert os.listdir(source) == before


def test_the_run_itself_cannot_be_a_checkpoint(store: CheckpointStore, layout: RunLayout) -> None:
    with pytest.raises(StorageError, match="the run itself is stored below it"):
        store.stage(layout.root.parent, layout.shard_dir(1, 0, 0), move=False)


def test_staging_again_replaces_what_an_earlier_try_left(
    store: CheckpointStore, layout: RunLayout, source: Path
) -> None:
    target = fill(layout.shard_dir(1, 0, 0), {"stale": b"x", "model.pt": b"old"})
    store.stage(source, target, move=False)
    assert content(target) == FILES


def test_a_full_disk_while_staging_gives_its_space_back(layout: RunLayout, source: Path) -> None:
    target = layout.shard_dir(1, 0, 0)
    for at in range(len(FILES)):
        with pytest.raises(StorageFullError):
            CheckpointStore(layout, FullDisk(at)).stage(source, target, move=False)
        assert content(source) == FILES
        assert not target.exists()


def test_a_move_that_fails_half_way_is_undone(layout: RunLayout, source: Path) -> None:
    class Failing(Disk):
        def rename(self, old: Path, new: Path) -> None:
            if old == source / "optim":
                raise StorageError("input/output error")
            super().rename(old, new)

    with pytest.raises(StorageError):
        CheckpointStore(layout, Failing()).stage(source, layout.shard_dir(1, 0, 0), move=True)
    assert content(source) == FILES


def test_sealing_describes_every_file_in_order(store: CheckpointStore, source: Path) -> None:
    entries = store.seal(source)
    assert [(entry.path, entry.size) for entry in entries] == [(name, len(FILES[name])) for name in sorted(FILES)]
    assert entries[1] == FileEntry("optim/empty", 0, "99aa06d3014798d86001c324468d497f")  # XXH3-128 of nothing


def test_sealing_makes_every_file_and_directory_durable(layout: RunLayout, source: Path) -> None:
    synced: list[Path] = []

    class Recording(Disk):
        def fsync_file(self, path: Path) -> None:
            synced.append(path)

        def fsync_dir(self, path: Path) -> None:
            synced.append(path)

    CheckpointStore(layout, Recording()).seal(source)
    assert set(synced) == {source, *source.rglob("*")}


def test_a_digest_does_not_depend_on_buffers(store: CheckpointStore, tmp_path: Path) -> None:
    data = os.urandom((4 << 20) + 12345)
    whole = fill(tmp_path / "a", {"f": data, "g": data[:-1]})
    first, second = store.seal(whole)
    assert first.digest != second.digest
    assert first.digest == xxhash.xxh3_128_hexdigest(data)


def test_an_empty_checkpoint_is_an_error_that_says_so(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with pytest.raises(StorageError, match="is empty: save files"):
        store.seal(tmp_path / "empty")
