"""``Result`` and the history behind it, read from object stores."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow.fs
import pytest

from holdfast.errors import NotARunError, StorageDeniedError, StorageError, StorageUnavailableError
from holdfast.runs.stored_experiment import load
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.metrics import line, parse_line
from holdfast.store.remote.parts import PartUploader
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.train import Checkpoint, DataParallelTrainer, Result
from support.object_stores.remote_runs import GOLDEN_RUN, commit, flip, open_at, put_golden, tree


def test_a_remote_run_has_the_result_of_the_same_run_on_disk(place: str, temporary: Path) -> None:
    url = f"{place}/run"
    put_golden(url)
    here, there = Result.from_path(GOLDEN_RUN), Result.from_path(url)
    assert repr(there.metrics) == repr(here.metrics)  # NaN is not equal to itself
    assert (there.path, there.config, repr(there.error)) == (url, here.config, repr(here.error))
    assert there.ledger.summary() == here.ledger.summary()
    assert there.metrics_dataframe.equals(here.metrics_dataframe)
    assert [Path(c.path).name for c, _ in there.best_checkpoints] == [
        Path(c.path).name for c, _ in here.best_checkpoints
    ]
    assert repr([m for _, m in there.best_checkpoints]) == repr([m for _, m in here.best_checkpoints])
    assert here.checkpoint is not None
    assert there.checkpoint == Checkpoint(f"{url}/checkpoints/{Path(here.checkpoint.path).name}")
    with there.checkpoint.as_directory() as directory:
        assert tree(directory) == tree(here.checkpoint.path)
    assert tree(temporary) == {}


def test_a_result_reads_its_reports_also_when_it_was_sent_elsewhere(bucket: str) -> None:
    put_golden(f"{bucket}/run")
    sent = pickle.loads(pickle.dumps(Result.from_path(f"{bucket}/run")))
    assert len(sent.metrics_dataframe) == len(Result.from_path(GOLDEN_RUN).metrics_dataframe)


def test_a_configured_store_is_passed_on(bucket: str, s3: object) -> None:
    put_golden(f"{bucket}/runs/run")
    store = s3.store(bucket.removeprefix("s3://"))  # type: ignore[attr-defined]
    result = Result.from_path("runs/run", storage_filesystem=store)
    assert result.filesystem is store
    assert result.path == f"{bucket}/runs/run"
    assert result.checkpoint is not None
    assert result.checkpoint.filesystem is store
    with result.checkpoint.as_directory() as directory:
        assert tree(directory)


@pytest.mark.parametrize("part_size", [100, 1 << 20])
def test_reports_that_are_stored_in_parts(place: str, tmp_path: Path, part_size: int) -> None:
    objects = open_at(place)
    path = tmp_path / "rank-0.jsonl"
    path.write_bytes(b"".join(line(index, 1.0, {"loss": index}) for index in range(50)))
    PartUploader(objects, "metrics/attempt-0001/rank-0.jsonl", path, part_size).sync()
    run = StoredRun(Location.parse("path", place), 10.0)
    assert [row["index"] for row in run.reports(1)] == list(range(50))
    last = next(filter(None, run.reports_backwards(1)))
    assert parse_line(last) == run.reports(1)[-1]
    assert (run.reports(2), [*filter(None, run.reports_backwards(2))]) == ([], [])


def test_a_damaged_run_file_is_read_from_its_copy_in_the_journal(place: str) -> None:
    put_golden(f"{place}/run")
    location = Location.parse("path", f"{place}/run")
    identity = StoredRun(location).identity()
    flip(f"{place}/run", "run.json")
    assert StoredRun(location).identity() == identity
    assert Result.from_path(f"{place}/run").config == identity["train_loop_config"]
    objects = open_at(f"{place}/run")
    objects.delete([info.key for info in objects.list("journal/")])
    with pytest.raises(StorageError, match=rf"{place}/run/run\.json is damaged"):
        StoredRun(location).identity()


def test_what_counts_is_what_the_next_driver_would_keep(place: str) -> None:
    url = f"{place}/run"
    put_golden(url)
    kept = [id for id, _, _ in load(Location.parse("path", url)).checkpoints]
    commit(url, "late", report=9, epoch=0)  # by a driver that had been relieved
    commit(url, "bad", report=9, epoch=99)
    RemoteCheckpoints(open_at(url)).quarantine("bad", "why")
    commit(url, "new", report=10, epoch=99)
    assert [id for id, _, _ in load(Location.parse("path", url)).checkpoints] == [*kept, "new"]


def test_where_there_is_no_run(place: str) -> None:
    with pytest.raises(NotARunError, match=f"{place} is not a Holdfast run"):
        Result.from_path(place)
    assert not DataParallelTrainer.can_restore(place)


def test_storage_that_does_not_answer_is_not_the_absence_of_a_run(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_golden(f"{bucket}/run")
    location = Location.parse("path", f"{bucket}/run")
    with pytest.raises(StorageDeniedError, match="NoSuchBucket"):
        load(Location.parse("path", "s3://no-such-bucket/run"), patience_s=0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for read in (lambda: load(location, 0.0), StoredRun(location, 0.0).identity):
        with pytest.raises(StorageUnavailableError, match="cannot be reached"):
            read()


def test_the_file_system_of_a_result_is_pyarrows(bucket: str, tmp_path: Path) -> None:
    """With the path as it is shown, and as Ray writes it, without the scheme."""
    put_golden(f"{bucket}/runs/run")
    result = Result.from_path(f"{bucket}/runs/run")
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        wanted = tree(directory)
    for path in (result.checkpoint.path, result.checkpoint.path.removeprefix("s3://")):
        copied = tmp_path / str(len(path))
        copied.mkdir()
        pyarrow.fs.copy_files(
            path, str(copied), source_filesystem=result.filesystem, destination_filesystem=pyarrow.fs.LocalFileSystem()
        )
        assert tree(copied) == wanted
    assert repr(Result.from_path(result.path, result.filesystem).metrics) == repr(result.metrics)  # NaN is not NaN
    assert Checkpoint(result.checkpoint.path, result.checkpoint.filesystem) == result.checkpoint


def test_a_bucket_as_a_file_system_of_pyarrow(bucket: str) -> None:
    files = Checkpoint(f"{bucket}/one").filesystem
    with files.open_output_stream(f"{bucket}/one/a/b") as stream:
        stream.write(b"0123456789")
    kinds = {path: files.get_file_info(f"{bucket}/{path}").type.name for path in ("one", "one/a/b", "two")}
    assert kinds == {"one": "Directory", "one/a/b": "File", "two": "NotFound"}
    with files.open_input_file(f"{bucket}/one/a/b") as file:
        file.seek(4)
        assert file.read(3) == b"456"
        assert file.size() == 10
    inside = bucket.removeprefix("s3://")
    listed = files.get_file_info(pyarrow.fs.FileSelector(f"{bucket}/one", recursive=True))
    assert sorted(info.path for info in listed) == [f"{inside}/one/a", f"{inside}/one/a/b"]
    shallow = files.get_file_info(pyarrow.fs.FileSelector(f"{bucket}/one"))
    assert [info.base_name for info in shallow] == ["a"]
    files.copy_file(f"{bucket}/one/a/b", f"{bucket}/one/c")
    files.move(f"{bucket}/one/c", f"{bucket}/one/d")
    files.delete_file(f"{bucket}/one/a/b")
    assert [info.base_name for info in files.get_file_info(pyarrow.fs.FileSelector(f"{bucket}/one"))] == ["d"]
    files.delete_dir(f"{bucket}/one")
    assert files.get_file_info(f"{bucket}/one").type.name == "NotFound"
    with pytest.raises(FileNotFoundError):
        files.get_file_info(pyarrow.fs.FileSelector(f"{bucket}/one"))


def test_the_file_system_of_a_local_result(tmp_path: Path) -> None:
    result = Result.from_path(GOLDEN_RUN)
    assert result.filesystem == pyarrow.fs.LocalFileSystem()
    assert result.checkpoint is not None
    copied = tmp_path / "copy"
    copied.mkdir()
    pyarrow.fs.copy_files(result.checkpoint.path, str(copied), source_filesystem=result.checkpoint.filesystem)
    assert tree(copied) == tree(result.checkpoint.path)
