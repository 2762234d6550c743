from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import CheckpointDamagedError, NewerFormatError, RunInUseError, StorageError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import FencedDisk
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import FileEntry, Manifest, Shard
from holdfast.store.sealed import seal
from support.store.faulty_disk import FullDisk
from support.store.sample_files import FILES, content, fill, tree


@pytest.fixture
def store(layout: RunLayout) -> CheckpointStore:
    return CheckpointStore(layout)


def manifest(id: str, report: int = 0, metrics: Any = None) -> Manifest:
    return Manifest(0, id, 1, report, report, 2, 1.5, metrics, [])


def commit(layout: RunLayout, id: str, *ranks: dict[str, bytes], report: int = 0, metrics: Any = None) -> Manifest:
    store = CheckpointStore(layout)
    shards = []
    for rank, files in enumerate(ranks or (FILES,)):
        directory = fill(layout.shard_dir(1, report, rank), files)
        shards.append(Shard(rank, layout.relative(directory), store.seal(directory)))
    return store.commit(manifest(id, report, metrics), shards)


def ids(store: CheckpointStore) -> list[str]:
    return [found.id for found in store.scan()[0]]


def test_a_commit_merges_the_ranks_and_the_lowest_wins(store: CheckpointStore, layout: RunLayout) -> None:
    ranks = [{"shared": b"zero", "r0/a": b"0"}, {"shared": b"one!", "r1/a": b"1", "r0/b": b"b"}]
    committed = commit(layout, "c", *ranks, metrics={"loss": math.inf, 3: "three"})
    assert content(layout.checkpoint_dir("c")) == {"shared": b"zero", "r0/a": b"0", "r0/b": b"b", "r1/a": b"1"}
    assert [entry.path for entry in committed.files] == ["r0/a", "r0/b", "r1/a", "shared"]
    assert store.read_manifest("c") == store.verify("c") == committed
    assert committed.metrics == {"loss": math.inf, 3: "three"}
    assert not layout.staging_dir.exists() or tree(layout.staging_dir) <= {"."}
    json.loads(layout.manifest_file("c").read_bytes(), parse_constant=pytest.fail)


def test_ranks_in_any_order_give_the_same_checkpoint(layout: RunLayout) -> None:
    store = CheckpointStore(layout)
    shards = []
    for rank in (2, 0, 1):
        directory = fill(layout.shard_dir(1, 0, rank), {"shared": b"%d" % rank})
        shards.append(Shard(rank, str(directory), store.seal(directory)))
    store.commit(manifest("c"), shards)
    assert content(layout.checkpoint_dir("c")) == {"shared": b"0"}


def test_what_refuses_the_manifest_leaves_the_shards_as_they_were(store: CheckpointStore, layout: RunLayout) -> None:
    """As when the reports before it could not be written to disk, which happens beside the merge."""
    directory = fill(layout.shard_dir(1, 0, 0), FILES)
    shards = [Shard(0, layout.relative(directory), store.seal(directory))]

    def refuse() -> None:
        assert not layout.manifest_file("c").exists()
        raise StorageError("no space left")

    with pytest.raises(StorageError, match="no space"):
        store.commit(manifest("c"), shards, before=refuse)
    assert content(directory) == FILES
    assert ids(store) == []
    assert store.commit(manifest("c"), shards).id == "c"


def test_a_commit_without_any_file_is_refused(store: CheckpointStore, layout: RunLayout) -> None:
    with pytest.raises(StorageError, match="is empty: save files"):
        store.commit(manifest("c"), [])
    assert not layout.checkpoints_dir.exists()


def test_ranks_that_contradict_each_other_are_named(layout: RunLayout) -> None:
    with pytest.raises(StorageError, match="saved the file 'a' and another saved 'a/b'"):
        commit(layout, "c", {"a": b""}, {"a/b": b""})


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "."])
def test_no_shard_reaches_outside(store: CheckpointStore, layout: RunLayout, path: str) -> None:
    directory = fill(layout.shard_dir(1, 0, 0), {"a": b""})
    with pytest.raises(StorageError):
        store.commit(manifest("c"), [Shard(0, str(directory), [FileEntry(path, 0, "")])])
    assert ids(store) == []


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"more" * 99), lambda path: path.unlink()])
def test_a_file_that_changed_after_it_was_sealed_is_refused(
    store: CheckpointStore, layout: RunLayout, change: Any
) -> None:
    directory = fill(layout.shard_dir(1, 0, 0), FILES)
    shard = Shard(0, str(directory), store.seal(directory))
    change(directory / "optim" / "state.pt")
    with pytest.raises(StorageError, match=r"The staged file .*optim/state.pt"):
        store.commit(manifest("c"), [shard])
    assert ids(store) == []
    assert (directory / "model.pt").exists()


def test_strange_file_names_survive(store: CheckpointStore, layout: RunLayout) -> None:
    names = {"größe": b"1", "a\nb": b"2", "$dict": b"3", 'quote"': b"4", os.fsdecode(b"raw-\xff"): b"5", " ": b"6"}
    commit(layout, "c", names)
    store.verify("c")
    assert content(layout.checkpoint_dir("c")) == names


def test_a_moved_run_keeps_its_checkpoints(layout: RunLayout) -> None:
    commit(layout, "c")
    moved = RunLayout(layout.root.with_name("moved"))
    shutil.move(layout.root, moved.root)
    assert CheckpointStore(moved).verify("c").id == "c"


def test_every_flipped_bit_and_truncation_is_caught(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "c", metrics={"loss": 0.5})
    files = [layout.manifest_file("c"), *(layout.checkpoint_dir("c") / name for name in FILES)]
    for path in files:
        good = path.read_bytes()
        for position in range(len(good)):
            flipped = bytearray(good)
            flipped[position] ^= 1 << position % 8
            for bad in (bytes(flipped), good[:position]):
                path.write_bytes(bad)
                with pytest.raises(CheckpointDamagedError):
                    store.verify("c")
        path.write_bytes(good + b"\0")
        with pytest.raises(CheckpointDamagedError):
            store.verify("c")
        path.write_bytes(good)
    store.verify("c")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda directory: (directory / "model.pt").unlink(), "model.pt is missing"),
        (lambda directory: (directory / "model.pt").write_bytes(b"short"), "model.pt has 5 bytes instead of 70"),
        (lambda directory: (directory / "model.pt").write_bytes(b"x" * 70), "model.pt has other content"),
        (lambda directory: (directory / "optim" / "new").touch(), "optim/new does not belong to it"),
        (lambda directory: (directory / "link").symlink_to("optim"), "link does not belong to it"),
        (lambda directory: shutil.rmtree(directory / "optim"), r"optim/empty is missing; optim/state.pt is missing"),
        (lambda directory: shutil.rmtree(directory), "model.pt is missing"),
    ],
)
def test_verification_names_what_differs(store: CheckpointStore, layout: RunLayout, change: Any, said: str) -> None:
    commit(layout, "c")
    change(layout.checkpoint_dir("c"))
    with pytest.raises(CheckpointDamagedError, match=said):
        store.verify("c")


def test_a_file_replaced_by_a_link_to_the_same_content_is_damage(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "c")
    path = layout.checkpoint_dir("c") / "model.pt"
    outside = path.rename(layout.root / "elsewhere")
    path.symlink_to(outside)
    with pytest.raises(CheckpointDamagedError, match="not a regular file"):
        store.verify("c")


def test_a_manifest_of_another_checkpoint_or_version_is_refused(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "a")
    shutil.copy(layout.manifest_file("a"), layout.manifest_file("b"))
    with pytest.raises(CheckpointDamagedError, match="belongs to another checkpoint, 'a'"):
        store.read_manifest("b")
    newer = json.loads(layout.manifest_file("a").read_bytes()) | {"format": 2}
    del newer["sum"]
    layout.manifest_file("a").write_bytes(seal(json.dumps(newer).encode()))
    with pytest.raises(NewerFormatError, match=r"format 2.*reads formats up to 1"):
        store.read_manifest("a")
    layout.manifest_file("a").write_bytes(seal(b'{"format":1}'))
    with pytest.raises(CheckpointDamagedError, match="missing required field"):
        store.read_manifest("a")


def test_scanning_goes_by_report_number_and_names_what_is_damaged(store: CheckpointStore, layout: RunLayout) -> None:
    assert store.scan() == ([], [])
    for report, id in [(10, "a"), (2, "z"), (9, "m"), (5, "bad"), (6, "gone")]:
        commit(layout, id, report=report)
    layout.manifest_file("bad").write_bytes(b"garbage")
    shutil.rmtree(layout.checkpoint_dir("gone"))
    (layout.checkpoints_dir / "..json").write_bytes(b"")
    found, damage = store.scan()
    assert [manifest.id for manifest in found] == ["z", "m", "a"]
    assert [item.path for item in damage] == ["checkpoints/bad.json", "checkpoints/gone.json"]


def test_a_commit_that_the_next_driver_has_finished_is_not_taken_back(layout: RunLayout) -> None:
    """The first one was stopped in the middle of it, and continues."""
    lost: list[RunInUseError] = []

    class Stopped(FencedDisk):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            if not lost:
                lost.append(RunInUseError("another driver has taken over"))
                layout.manifest_file("c").write_bytes(b"theirs")
                shutil.rmtree(layout.staging_dir)

    def fence() -> None:
        for error in lost:
            raise error

    store = CheckpointStore(layout, Stopped(fence))
    directory = fill(layout.shard_dir(1, 0, 0), FILES)
    with pytest.raises(RunInUseError):
        store.commit(manifest("c"), [Shard(0, layout.relative(directory), store.seal(directory))])
    assert layout.manifest_file("c").read_bytes() == b"theirs"
    assert (layout.checkpoint_dir("c") / "model.pt").exists()


def test_a_quarantined_checkpoint_is_never_offered_and_its_files_stay(
    store: CheckpointStore, layout: RunLayout
) -> None:
    commit(layout, "c")
    for _ in range(2):
        store.quarantine("c", "model.pt has other content")
    assert store.scan() == ([], [])
    assert store.collect() in ([], [".staging"])
    assert content(layout.checkpoint_dir("c")) == FILES
    assert layout.quarantine_reason_file("c").read_text() == "model.pt has other content\n"
    with pytest.raises(CheckpointDamagedError):
        store.verify("c")


def test_a_directory_whose_manifest_vanished_can_be_quarantined(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "c")
    layout.manifest_file("c").unlink()
    store.quarantine("c", "no manifest")
    store.collect()
    assert content(layout.checkpoint_dir("c")) == FILES


def test_deleting_works_on_a_full_disk(layout: RunLayout) -> None:
    commit(layout, "c")
    CheckpointStore(layout, FullDisk(0)).delete("c")
    assert list(layout.checkpoints_dir.iterdir()) == []


def test_quarantine_works_on_a_full_disk(layout: RunLayout) -> None:
    commit(layout, "c")
    synced: list[Path] = []

    class Recording(FullDisk):
        def intercept(self, name: str, args: tuple[Any, ...], do: Any) -> Any:
            if name == "fsync_dir":
                synced.append(args[0])
            return super().intercept(name, args, do)

    CheckpointStore(layout, Recording(0)).quarantine("c", "reason")
    assert synced == [layout.checkpoints_dir]
    assert CheckpointStore(layout).scan() == ([], [])
    assert content(layout.checkpoint_dir("c")) == FILES


def test_the_name_of_a_quarantined_checkpoint_can_be_committed_anew(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "c", {"old": b""})
    store.quarantine("c", "reason")
    commit(layout, "c", report=1)
    store.verify("c")
    assert {path.name for path in layout.checkpoints_dir.iterdir()} == {"c", "c.json"}


def test_workers_that_still_stage_do_not_hinder_the_next_driver(
    store: CheckpointStore, layout: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(layout.shard_dir(1, 5, 0), FILES)
    rmdir = os.rmdir

    def late(path: Any, **options: Any) -> None:
        if Path(path) == layout.staging_dir:
            fill(layout.shard_dir(1, 6, 0), FILES)  # on a node that is cut off and does not know yet
        rmdir(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", late)
        assert store.collect() == [".staging"]
    assert [path.name for path in layout.staging_dir.iterdir()] == ["attempt-0001-report-000006"]
    store.collect()
    assert not layout.staging_dir.exists()


def test_collecting_removes_leftovers_and_nothing_else(store: CheckpointStore, layout: RunLayout) -> None:
    assert store.collect() == []
    commit(layout, "good")
    commit(layout, "unreadable", report=1)
    layout.manifest_file("unreadable").write_bytes(b"garbage")
    (layout.checkpoints_dir / "notes.txt").write_text("a user's")
    fill(layout.checkpoint_dir("half"), FILES)
    layout.unfinished_file("half").touch()
    layout.unfinished_file("nothing-yet").touch()
    fill(layout.shard_dir(1, 5, 0), FILES)
    layout.run_file.touch()
    for directory in (layout.root, layout.checkpoints_dir):
        (directory / ".x.json.0a0b0c0d.tmp").touch()
    assert sorted(store.collect()) == [
        ".staging",
        ".x.json.0a0b0c0d.tmp",
        "checkpoints/.half.unfinished",
        "checkpoints/.nothing-yet.unfinished",
        "checkpoints/.x.json.0a0b0c0d.tmp",
        "checkpoints/half",
    ]
    store.verify("good")
    names = {"good", "good.json", "unreadable", "unreadable.json", "notes.txt"}
    assert {path.name for path in layout.checkpoints_dir.iterdir()} == names
    assert content(layout.checkpoint_dir("unreadable")) == FILES


def test_collecting_leaves_what_others_put_there(store: CheckpointStore, layout: RunLayout) -> None:
    commit(layout, "checkpoint_000003", report=3)
    shutil.copytree(layout.checkpoint_dir("checkpoint_000003"), layout.checkpoints_dir / "best")
    outside = fill(layout.root.with_name("another-project"), FILES)
    (layout.checkpoints_dir / "linked").symlink_to(outside)
    for _ in range(2):
        assert store.collect() in ([], [".staging"])
    store.delete("checkpoint_000003")
    store.collect()
    assert ids(store) == []
    assert content(layout.checkpoints_dir / "best") == content(layout.checkpoints_dir / "linked") == FILES


def test_a_directory_that_others_put_there_makes_way_for_a_checkpoint(
    store: CheckpointStore, layout: RunLayout, caplog: pytest.LogCaptureFixture
) -> None:
    fill(layout.checkpoints_dir / "best", {"theirs": b"1"})
    commit(layout, "best")
    store.verify("best")
    (aside,) = layout.checkpoints_dir.glob("best.set-aside-*")
    assert aside.name in caplog.text
    for _ in range(2):
        store.collect()
    store.delete("best")
    assert content(aside) == {"theirs": b"1"}


def test_a_checkpoint_that_somebody_moved_elsewhere_and_linked_loses_the_link_alone(
    store: CheckpointStore, layout: RunLayout
) -> None:
    def begin_to_delete(id: str) -> None:
        layout.manifest_file(id).rename(layout.unfinished_file(id))

    for id, end in (("a", store.delete), ("b", begin_to_delete)):
        commit(layout, id, report=ord(id))
        elsewhere = layout.root.with_name(f"elsewhere-{id}")
        layout.checkpoint_dir(id).rename(elsewhere)
        layout.checkpoint_dir(id).symlink_to(elsewhere)
        end(id)
        store.collect()
        assert not os.path.lexists(layout.checkpoint_dir(id))
        assert content(elsewhere) == FILES
    assert list(layout.checkpoints_dir.iterdir()) == []
