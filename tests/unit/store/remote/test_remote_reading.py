"""A run on an object store as readers see it, while a driver may be writing it. Nothing is copied."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunSpec
from holdfast.errors import NotARunError
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.metrics import line
from holdfast.store.remote import remote_runfile
from holdfast.store.remote.object_run import ObjectRun
from holdfast.store.remote.parts import PartUploader, files_of
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.remote.remote_journal import read
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


def stored(objects: FakeObjects) -> StoredRun:
    location = Location("memory://bucket", "runs/run")
    return StoredRun(location, store=ObjectRun(location, objects, 1.0))


def test_all_of_it_is_read(bucket: Bucket, tmp_path: Path) -> None:
    objects = make_run(bucket, tmp_path)
    run = stored(FakeObjects(bucket))
    assert run.identity() == {"name": "run"}
    assert run.journal() == read(objects)
    manifests, damage = run.manifests()
    assert ([manifest.id for manifest in manifests], damage) == (["a", "b", "c"], [])
    assert run.quarantined() == [("bad", "why")]
    assert [row["index"] for row in run.reports(1)] == list(range(50))
    assert run.metrics_damage(METRICS) == (50, [])
    assert b"".join(run.log(1, 0, 3)) == b"line end"


def test_reports_and_logs_are_not_fetched_before_they_are_asked_for(bucket: Bucket, tmp_path: Path) -> None:
    make_run(bucket, tmp_path)
    objects, asked = FakeObjects(bucket), list[str]()
    objects.before = lambda _step, _kind, key: asked.append(key)
    found = stored(objects).read()
    assert asked
    assert not [key for key in asked if key.startswith(("metrics/", "logs/"))]
    assert found.rows == [], "no attempt was journalled"


def test_where_there_is_no_run_the_error_names_the_place() -> None:
    with pytest.raises(NotARunError, match="memory://bucket/runs/run is not a Holdfast run"):
        stored(FakeObjects(Bucket({"other": b"x"}))).identity()


def test_damage_is_named_and_nothing_else_is_lost(bucket: Bucket, tmp_path: Path) -> None:
    make_run(bucket, tmp_path)
    last = max(key for key in bucket.content if key.startswith("journal/"))
    bucket.flip(last, 8 * (len(bucket.content[last]) - 30))
    bucket.flip("checkpoints/b.json", 50)
    bucket.flip("run.json", 50)
    run = stored(FakeObjects(bucket))
    records, damage = run.journal()
    assert records == read(FakeObjects(bucket))[0]
    assert len(damage) == 1
    assert run.journal_damage() == damage
    manifests, damage = run.manifests()
    assert [manifest.id for manifest in manifests] == ["a", "c"]
    assert [one.path for one in damage] == ["checkpoints/b.json"]
    assert [one.path for one in run.run_file_damage()] == ["run.json"]


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
    run = stored(reader)
    manifests, damage = run.manifests()
    assert ([manifest.id for manifest in manifests], damage) == (["b", "c"], [])
    assert run.metrics_damage(METRICS)[1] == []


def test_what_a_relieved_driver_committed_too_late_is_left_out(bucket: Bucket, tmp_path: Path) -> None:
    objects = make_run(bucket, tmp_path)
    driver, _, _ = begin(objects)
    driver.append([("DriverStarted", msgspec.to_builtins(ev.DriverStarted(3, RunSpec(nodes_hold_files=True))))], 1.0)
    RemoteCheckpoints(FakeObjects(bucket)).commit(upload(bucket, "late", epoch=2, report=9))
    assert [manifest.id for manifest in stored(FakeObjects(bucket)).manifests()[0]] == ["a", "b", "c"]
