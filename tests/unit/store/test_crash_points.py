"""Whatever operation a crash, a power cut or a full disk hits: the old state or the new one, never anything between."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotARunError, StorageError, StorageFullError
from holdfast.store import runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk
from holdfast.store.journal import JournalFile, read
from holdfast.store.layout import RunLayout
from holdfast.store.lease import Lease
from holdfast.store.manifests import Manifest, Shard
from support.store.faulty_disk import OPERATIONS, TEARABLE, BrokenDisk, Crash, CrashingDisk, FullDisk, PowerCutDisk

PAYLOAD = {
    0: {"model.pt": b"weights" * 50, "shared.json": b"rank 0", ".metadata.json": b"{}"},
    1: {"optimizer/state.pt": b"momentum" * 50, "optimizer/deep/empty.pt": b"", "shared.json": b"rank 1"},
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives is modelled here, so the real disk need not be waited for."""
    monkeypatch.setattr("holdfast.store.disk._flush", lambda _fd: None)


def save(layout: RunLayout, attempt_number: int, write: Callable[[Path, bytes], Any]) -> list[tuple[int, Path]]:
    """What two ranks leave in staging."""
    shards = []
    for rank, files in PAYLOAD.items():
        directory = layout.shard_dir(attempt_number, 0, rank)
        for name, content in files.items():
            write(directory / name, content)
        shards.append((rank, directory))
    return shards


def write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def commit(layout: RunLayout, disk: Disk, id: str, attempt_number: int) -> Manifest:
    store = CheckpointStore(layout, disk)
    write = disk.user_writes if isinstance(disk, PowerCutDisk) else write_file
    staged = save(layout, attempt_number, write)
    shards = [Shard(rank, layout.relative(directory), store.seal(directory)) for rank, directory in staged]
    return store.commit(Manifest(0, id, attempt_number, 0, attempt_number, 2, 1.5, {"loss": float("inf")}, []), shards)


def nothing(layout: RunLayout) -> None:
    layout.root.mkdir(parents=True)


def two_committed(layout: RunLayout) -> None:
    nothing(layout)
    commit(layout, Disk(), "one", 1)
    commit(layout, Disk(), "two", 2)


def two_and_a_leftover(layout: RunLayout) -> None:
    two_committed(layout)
    write_file(layout.checkpoint_dir("new") / "model.pt", b"of another generation")
    write_file(layout.checkpoint_dir("new") / "stray" / "file", b"")
    write_file(layout.unfinished_file("new"), b"")


def two_and_a_quarantined(layout: RunLayout) -> None:
    two_committed(layout)
    commit(layout, Disk(), "new", 3)
    CheckpointStore(layout).quarantine("new", "for the test")


def three_committed(layout: RunLayout) -> None:
    two_committed(layout)
    commit(layout, Disk(), "new", 3)


def three_with_a_damaged_one(layout: RunLayout) -> None:
    three_committed(layout)
    (layout.checkpoint_dir("new") / "model.pt").write_bytes(b"rotten")


@dataclass(frozen=True)
class Case:
    prepare: Callable[[RunLayout], None]
    act: Callable[[RunLayout, Disk], Any]
    kept: set[str] = field(default_factory=lambda: {"one", "two"})  # always there
    new_at_end: bool = False
    offered_if_there: bool = True  # "new" verifies whenever it is visible


CASES = {
    "first commit": Case(nothing, lambda layout, disk: commit(layout, disk, "new", 9), set(), new_at_end=True),
    "next commit": Case(two_committed, lambda layout, disk: commit(layout, disk, "new", 9), new_at_end=True),
    "over a leftover": Case(two_and_a_leftover, lambda layout, disk: commit(layout, disk, "new", 9), new_at_end=True),
    "over quarantine": Case(
        two_and_a_quarantined, lambda layout, disk: commit(layout, disk, "new", 9), new_at_end=True
    ),
    "delete": Case(three_committed, lambda layout, disk: CheckpointStore(layout, disk).delete("new")),
    "quarantine": Case(
        three_with_a_damaged_one,
        lambda layout, disk: CheckpointStore(layout, disk).quarantine("new", "rotten"),
        offered_if_there=False,
    ),
}


def check(layout: RunLayout, case: Case, context: object) -> None:
    """What must hold after any interruption, and that the operation can then be repeated."""
    offered = visible(layout, case, context)
    CheckpointStore(layout).collect()
    assert visible(layout, case, context) == offered, context
    assert leftovers(layout) == [], context
    if not (case.new_at_end and "new" in offered):
        case.act(layout, Disk())
    assert visible(layout, case, context) == (case.kept | {"new"} if case.new_at_end else case.kept), context
    CheckpointStore(layout).collect()
    assert leftovers(layout) == [], context


def visible(layout: RunLayout, case: Case, context: object) -> set[str]:
    store = CheckpointStore(layout)
    manifests, damage = store.scan()
    assert damage == [], context
    ids = {manifest.id for manifest in manifests}
    assert case.kept <= ids <= case.kept | {"new"}, context
    for manifest in manifests:
        if manifest.id == "new" and not case.offered_if_there:
            continue
        store.verify(manifest.id)
        for name, content in (PAYLOAD[1] | PAYLOAD[0]).items():
            assert (layout.checkpoint_dir(manifest.id) / name).read_bytes() == content, context
    return ids


def leftovers(layout: RunLayout) -> list[str]:
    """Everything that belongs to no committed or quarantined checkpoint."""
    found = [str(path) for path in [layout.staging_dir] if path.exists()]
    found += [str(path) for pattern in (".*.tmp", ".*.unfinished") for path in layout.root.rglob(pattern)]
    if layout.checkpoints_dir.exists():
        names = {path.name for path in layout.checkpoints_dir.iterdir()}
        for name in names:
            id = name.split(".json")[0]
            if name == id and not {f"{id}.json", f"{id}.json.damaged"} & names:
                found.append(name)
    return found


def crash_points(prepare: Callable[[RunLayout], None], act: Callable[[RunLayout, Disk], Any], base: Path) -> Any:
    """Every (layout, context) after a crash at each operation, in each way."""
    prepared = base / "prepared"
    prepare(RunLayout(prepared))
    counted = CrashingDisk()
    shutil.copytree(prepared, base / "counted")
    act(RunLayout(base / "counted"), counted)
    assert counted.names
    for at, name in enumerate(counted.names):
        for moment in ("before", "half", "after") if name in TEARABLE else ("before", "after"):
            layout = RunLayout(base / f"{at}-{moment}")
            shutil.copytree(prepared, layout.root)
            with pytest.raises(Crash):
                act(layout, CrashingDisk(at, moment))
            yield layout, f"{moment} {name}, operation {at}"


def power_cuts(prepare: Callable[[RunLayout], None], act: Callable[[RunLayout, Disk], Any], base: Path) -> Any:
    """Every (layout, context) after a power cut behind each operation, with several choices of what was lost."""
    layout = RunLayout(base / "recorded")
    prepare(layout)
    disk = PowerCutDisk(layout.root)
    act(layout, disk)
    for after in range(len(disk.log) + 1):
        for seed in range(5):
            keep = random.Random(seed) if seed else None
            target = base / f"cut-{after}-{seed}"
            disk.cut(after, target, keep)
            done = disk.log[after - 1][0] if after else "nothing"
            yield RunLayout(target), f"power cut after {done}, operation {after}, seed {seed}", after == len(disk.log)


@pytest.mark.parametrize("name", CASES)
def test_a_crash_at_any_operation_on_checkpoints(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for layout, context in crash_points(case.prepare, case.act, tmp_path):
        check(layout, case, context)


@pytest.mark.parametrize("name", CASES)
def test_a_power_cut_after_any_operation_on_checkpoints(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for layout, context, complete in power_cuts(case.prepare, case.act, tmp_path):
        if complete:
            assert ("new" in visible(layout, case, context)) == case.new_at_end, f"what was acknowledged: {context}"
        check(layout, case, context)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.new_at_end])
def test_a_disk_that_is_full_at_any_write_of_a_commit(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for at in range(100):
        layout = RunLayout(tmp_path / str(at))
        case.prepare(layout)
        disk = FullDisk(at)
        store = CheckpointStore(layout, disk)
        shards = sealed_shards(layout)
        manifest = Manifest(0, "new", 9, 0, 9, 2, 1.5, {}, [])
        try:
            store.commit(manifest, shards)
        except StorageFullError:
            assert visible(layout, case, at) == case.kept
        else:
            assert at == disk.writes == 2
            return
        disk.full = False
        store.commit(manifest, shards)
        assert visible(layout, case, at) == case.kept | {"new"}
        CheckpointStore(layout).collect()
        assert leftovers(layout) == []
    pytest.fail("no commit ever got through")


def sealed_shards(layout: RunLayout) -> list[Shard]:
    return [
        Shard(rank, str(directory), CheckpointStore(layout).seal(directory))
        for rank, directory in save(layout, 9, write_file)
    ]


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.new_at_end])
def test_an_error_in_any_operation_of_a_commit(name: str, for_good: bool, tmp_path: Path) -> None:
    case = CASES[name]
    manifest = Manifest(0, "new", 9, 0, 9, 2, 1.5, {}, [])
    for at in range(100):
        layout = RunLayout(tmp_path / str(at))
        case.prepare(layout)
        shards = sealed_shards(layout)
        disk = BrokenDisk(at, for_good)
        try:
            CheckpointStore(layout, disk).commit(manifest, shards)
        except StorageError:
            offered = visible(layout, case, at)
            assert for_good or "new" not in offered, f"an error at operation {at} that is no error"
            if not for_good:
                CheckpointStore(layout).commit(manifest, shards)
        else:
            assert "new" in visible(layout, case, at)
        check(layout, case, at)
        if at >= disk.operations:
            return
    pytest.fail("no commit ever got through")


OLD = [("start", {"n": 1}), ("report", {"loss": 0.5}), ("report", {"loss": float("-inf")})]
NEW = [("recover", {"n": 2}), ("report", {"loss": 0.25, "text": "x" * 100}), ("end", {})]


def old_segment(layout: RunLayout) -> None:
    journal, _, _ = JournalFile.open(layout, 1)
    journal.append(OLD, 1.0)
    journal.close()


def next_segment(layout: RunLayout, disk: Disk) -> None:
    journal, records, damage = JournalFile.open(layout, 2, disk)
    try:
        assert (len(records), damage) == (len(OLD), [])
        journal.append(NEW[:1], 2.0)
        journal.append(NEW[1:], 3.0)
    finally:
        journal.close()


def check_journal(layout: RunLayout, context: object, epoch: int = 3) -> int:
    records, damage = read(layout)
    entries = [(record.kind, record.body) for record in records]
    assert entries == [*OLD, *NEW][: len(entries)], context
    assert len(entries) >= len(OLD), context
    assert [record.seq for record in records] == list(range(1, len(records) + 1)), context
    assert len(damage) <= 1, context
    journal, again, _ = JournalFile.open(layout, epoch)
    journal.append([("after", {})], 4.0)
    journal.close()
    assert again == records
    assert [record.kind for record in read(layout)[0]] == [kind for kind, _ in entries] + ["after"], context
    return len(entries)


def test_a_crash_at_any_operation_on_the_journal(tmp_path: Path) -> None:
    for layout, context in crash_points(old_segment, next_segment, tmp_path):
        check_journal(layout, context)


def test_a_power_cut_after_any_operation_on_the_journal(tmp_path: Path) -> None:
    for layout, context, complete in power_cuts(old_segment, next_segment, tmp_path):
        assert check_journal(layout, context) == len(OLD + NEW) or not complete


def test_what_an_append_returned_from_survives_a_power_cut(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "recorded")
    old_segment(layout)
    disk = PowerCutDisk(layout.root)
    journal, _, _ = JournalFile.open(layout, 2, disk)
    for number, entry in enumerate(NEW, start=1):
        journal.append([entry], 2.0)
        disk.cut(len(disk.log), tmp_path / f"cut-{number}", None)
        assert len(read(RunLayout(tmp_path / f"cut-{number}"))[0]) == len(OLD) + number
    journal.close()


def one_run_file(layout: RunLayout) -> None:
    runfile.write(layout, Disk(), {"version": "old"})


def rewrite(layout: RunLayout, disk: Disk) -> None:
    runfile.write(layout, disk, {"version": "new", "more": "x" * 200})


def test_an_interrupted_rewrite_of_the_run_file(tmp_path: Path) -> None:
    for layout, context in crash_points(one_run_file, rewrite, tmp_path / "crash"):
        assert runfile.read(layout)["version"] in ("old", "new"), context
        check_run_file_again(layout)
    for layout, context, complete in power_cuts(one_run_file, rewrite, tmp_path / "power"):
        assert runfile.read(layout)["version"] in (("new",) if complete else ("old", "new")), context
        check_run_file_again(layout)


def test_an_interrupted_first_write_of_the_run_file(tmp_path: Path) -> None:
    for layout, context in crash_points(nothing, rewrite, tmp_path):
        with contextlib.suppress(NotARunError):
            assert runfile.read(layout)["version"] == "new", context
        check_run_file_again(layout)


def check_run_file_again(layout: RunLayout) -> None:
    CheckpointStore(layout).collect()
    assert leftovers(layout) == []
    runfile.write(layout, Disk(), {"version": "newest"})
    assert runfile.read(layout) == {"version": "newest"}


def test_an_interrupted_lease_never_repeats_an_epoch_that_wrote(tmp_path: Path) -> None:
    def driver(layout: RunLayout, disk: Disk) -> None:
        lease = Lease.acquire(layout, disk)
        try:
            journal, _, _ = JournalFile.open(layout, lease.epoch, disk)
            journal.close()
        finally:
            lease.release()

    def two_drivers(layout: RunLayout) -> None:
        driver(layout, Disk())
        driver(layout, Disk())

    for layout, context in crash_points(two_drivers, driver, tmp_path / "crash"):
        lease = Lease.acquire(layout)
        lease.release()
        assert lease.epoch == 1 + max(epoch for epoch, _ in layout.segments()) or lease.epoch == 4, context
        driver(layout, Disk())
    for layout, context, _ in power_cuts(two_drivers, driver, tmp_path / "power"):
        lease = Lease.acquire(layout)
        lease.release()
        assert lease.epoch > max(epoch for epoch, _ in layout.segments()), context
        driver(layout, Disk())


def test_every_operation_of_a_disk_is_known_to_the_faulty_ones() -> None:
    assert set(TEARABLE) <= set(OPERATIONS)
    assert {"rename", "unlink", "fsync_dir", "write_new", "open_append", "truncate"} <= set(OPERATIONS)
