from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.errors import NotARunError
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.journal import Record
from holdfast.store.metrics import line, read_metrics
from holdfast.store.remote import runfile as remote_runfile
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.remote.journal import read
from holdfast.store.remote.mirror import mirror
from holdfast.store.remote.parts import PartUploader, files_of
from holdfast.testing.fake_objects import Bucket, FakeObjects
from support.object_stores.drivers import begin, say
from support.object_stores.uploads import upload

METRICS = "metrics/attempt-0001/rank-0.jsonl"


def make_run(bucket: Bucket, tmp_path: Path) -> FakeObjects:
    objects = FakeObjects(bucket)
    remote_runfile.write(objects, {"name": "run"})
    for _ in range(3):
        driver, _, _ = begin(objects)
        for number in range(20):
            say(driver, f"{number}")
    store = RemoteCheckpoints(objects)
    for report, id in enumerate(("a", "b", "c", "bad")):
        store.commit(upload(bucket, id, report=report, epoch=3))
    store.quarantine("bad", "why")
    path = tmp_path / "rank-0.jsonl"
    path.write_bytes(b"".join(line(index, 1.0, {"loss": index}) for index in range(50)))
    PartUploader(objects, METRICS, path, 100).sync()
    bucket.content["logs/attempt-0001/rank-0.log"] = b"no line end"
    return objects


def test_what_reads_runs_on_disk_reads_the_copy(bucket: Bucket, tmp_path: Path) -> None:
    objects = make_run(bucket, tmp_path)
    layout = mirror(FakeObjects(bucket), tmp_path / "copy", logs=True)
    assert runfile.read(layout) == {"name": "run"}
    assert journal.read(layout) == read(objects)
    manifests, damage = CheckpointStore(layout).scan()
    assert ([manifest.id for manifest in manifests], damage) == (["a", "b", "c"], [])
    assert layout.quarantine_reason_file("bad").read_text() == "why\n"
    rows, damage = read_metrics(layout, 1, 0)
    assert ([row["index"] for row in rows], damage) == (list(range(50)), [])
    assert layout.log_file(1, 0).read_bytes() == b"no line end"


def test_only_what_is_asked_for_is_fetched(bucket: Bucket, tmp_path: Path) -> None:
    make_run(bucket, tmp_path)
    layout = mirror(FakeObjects(bucket), tmp_path / "copy", metrics=False)
    assert not layout.metrics_dir.exists()
    assert not layout.logs_dir.exists()


def test_where_there_is_no_run_there_is_no_copy(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="memory://bucket/runs/run holds no run"):
        mirror(FakeObjects(Bucket({"other": b"x"})), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_damage_in_the_store_is_seen_in_the_copy_and_nothing_else_is_lost(bucket: Bucket, tmp_path: Path) -> None:
    make_run(bucket, tmp_path)
    last = max(key for key in bucket.content if key.startswith("journal/"))
    bucket.flip(last, 8 * (len(bucket.content[last]) - 30))
    bucket.flip("checkpoints/b.json", 50)
    bucket.flip("run.json", 50)
    layout = mirror(FakeObjects(bucket), tmp_path / "copy")
    records, damage = journal.read(layout)
    assert records == read(FakeObjects(bucket))[0]
    assert len(damage) == 1
    manifests, damage = CheckpointStore(layout).scan()
    assert [manifest.id for manifest in manifests] == ["a", "c"]
    assert [one.path for one in damage] == ["checkpoints/b.json"]
    assert layout.run_file.exists()


def test_a_run_that_is_being_written_does_not_look_damaged(bucket: Bucket, tmp_path: Path) -> None:
    objects = make_run(bucket, tmp_path)
    parts = files_of(bucket.content)[METRICS]
    for key in parts[4:]:
        del bucket.content[key]
    bucket.content[parts[3]] = bucket.content[parts[3]][:50]
    reader, store = FakeObjects(bucket), RemoteCheckpoints(objects)

    def change(_step: int, _kind: str, key: str) -> None:
        if key == "checkpoints/a.json":
            store.delete("a")

    reader.before = change
    layout = mirror(reader, tmp_path / "copy")
    manifests, damage = CheckpointStore(layout).scan()
    assert ([manifest.id for manifest in manifests], damage) == (["b", "c"], [])
    assert read_metrics(layout, 1, 0)[1] == []


def test_what_a_relieved_driver_committed_too_late_is_left_out(bucket: Bucket, tmp_path: Path) -> None:
    make_run(bucket, tmp_path)
    RemoteCheckpoints(FakeObjects(bucket)).commit(upload(bucket, "late", epoch=2, report=9))

    def judge(records: Sequence[Record]) -> Callable[[str, float], bool]:
        assert records
        return lambda id, epoch: id == "a" or epoch >= 3

    layout = mirror(FakeObjects(bucket), tmp_path / "copy", judge=judge)
    assert [manifest.id for manifest in CheckpointStore(layout).scan()[0]] == ["a", "b", "c"]
