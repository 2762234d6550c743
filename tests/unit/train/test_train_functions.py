from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow.fs
import pytest

from holdfast import train
from holdfast.store.location import Location
from holdfast.train import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ValidationTaskConfig,
    collective,
)
from holdfast.train.context import StorageContext
from holdfast.train.data import Whole
from holdfast.wire.worker_messages import Offer
from holdfast.worker.session import Files

OUTSIDE = [
    lambda: train.report({}),
    train.get_checkpoint,
    train.get_context,
    train.get_dataset_shard,
    train.get_all_reported_checkpoints,
    train.get_preemption_info,
    collective.barrier,
    lambda: collective.broadcast_from_rank_zero(1),
]


@pytest.mark.parametrize("call", OUTSIDE)
def test_outside_a_worker_the_error_says_where_it_works(call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"holdfast\.train\.[a-z_.]+\(\) works only inside a train function"):
        call()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that the user keeps: not a temporary one."""
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    directory = tmp_path / "kept"
    directory.mkdir()
    (directory / "model").write_text("weights")
    return directory


def save(directory: str | Path) -> Checkpoint:
    Path(directory, "model").write_text("weights")
    return Checkpoint.from_directory(directory)


def test_metrics_alone(session: Any) -> None:
    metrics = {"loss": 0.5}
    train.report(metrics)
    said = {"name": None, "wait": False, "validation": None}
    assert session.reports == [{"metrics": metrics, **asdict(Files()), **said}]


def test_a_temporary_directory_may_be_moved(session: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        train.report({}, checkpoint=save(directory))
        inner = Path(directory, "inner")
        inner.mkdir()
        train.report({}, checkpoint=save(inner))
    assert [(r["directory"], r["move"], r["wait"]) for r in session.reports] == [
        (directory, True, False),
        (str(inner), True, False),
    ]


def test_a_temporary_directory_elsewhere_may_be_moved_too(session: Any, kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept) as directory:
        train.report({}, checkpoint=save(directory))
    assert session.reports[0]["move"]


def test_a_directory_of_the_users_own_is_copied(session: Any, kept: Path) -> None:
    train.report({}, checkpoint=Checkpoint(kept))
    shared = Path(tempfile.gettempdir(), "shared-by-ranks")
    shared.mkdir()
    shared.chmod(0o755)
    train.report({}, checkpoint=save(shared))
    assert [r["move"] for r in session.reports] == [False, False]


@pytest.mark.parametrize("mode", [CheckpointUploadMode.ASYNC, CheckpointUploadMode.SYNC])
def test_the_users_word_on_deleting_counts(session: Any, kept: Path, mode: CheckpointUploadMode) -> None:
    def report(directory: str | Path, delete: bool) -> None:
        train.report({}, save(directory), checkpoint_upload_mode=mode, delete_local_checkpoint_after_upload=delete)

    report(kept, True)
    with tempfile.TemporaryDirectory() as directory:
        report(directory, False)
    assert [(r["move"], r["remove"]) for r in session.reports] == [(True, True), (False, False)]


def test_sync_waits_and_copies(session: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        train.report({}, save(directory), checkpoint_upload_mode=CheckpointUploadMode.SYNC)
    assert (session.reports[0]["move"], session.reports[0]["wait"]) == (False, True)


def test_a_committed_checkpoint_is_never_moved(session: Any, tmp_path: Path) -> None:
    committed = tmp_path / "checkpoints" / "epoch-1"
    committed.mkdir(parents=True)
    (tmp_path / "checkpoints" / "epoch-1.json").write_text("the manifest")
    resumed = tmp_path / "resumed"
    resumed.mkdir()
    session.resumed_from = Offer("resumed", str(resumed))
    for directory in (committed, resumed):
        train.report({}, save(directory))
        train.report({}, save(directory), delete_local_checkpoint_after_upload=True)
    assert [r["move"] for r in session.reports] == [False] * 4


def test_no_upload_takes_what_lies_in_the_run(session: Any) -> None:
    inside = Path(session.run_dir, "mine")
    inside.mkdir()
    train.report({}, save(inside), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    (report,) = session.reports
    assert (report["directory"], report["wait"]) == (None, True)
    assert [(entry.path, entry.at) for entry in report["elsewhere"]] == [("model", "mine")]


@pytest.mark.parametrize("exists", [False, True])
def test_no_upload_of_no_file_reports_the_metrics(session: Any, exists: bool) -> None:
    place = train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
    if exists:
        os.mkdir(place)
    with pytest.warns(UserWarning, match="no file"):
        train.report({"a": 1}, Checkpoint(place), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    (report,) = session.reports
    assert (report["metrics"], report["directory"], report["elsewhere"]) == ({"a": 1}, None, ())


def test_no_upload_elsewhere_is_refused(session: Any, kept: Path) -> None:
    with pytest.raises(ValueError, match=r"belong below .* but outside its checkpoints/"):
        train.report({}, Checkpoint(kept), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    assert session.reports == []


def test_a_deletion_that_would_take_the_run_along_is_refused(session: Any) -> None:
    above = Path(session.run_dir).parent
    with pytest.raises(ValueError, match="would delete the run"):
        train.report({}, save(above), delete_local_checkpoint_after_upload=True)
    assert session.reports == []


def test_an_empty_directory_adds_nothing(session: Any, tmp_path: Path) -> None:
    (tmp_path / "empty" / "also empty").mkdir(parents=True)
    with pytest.warns(UserWarning, match="save the files before the report"):
        train.report({"a": 1}, Checkpoint(tmp_path / "empty"))
    session.rank = 1
    train.report({"a": 1}, Checkpoint(tmp_path / "empty"))
    assert [r["directory"] for r in session.reports] == [None, None]


def test_upload_fn_says_where_the_files_are(session: Any, kept: Path, tmp_path: Path) -> None:
    names: list[str] = []

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        names.append(name)
        return Checkpoint(checkpoint.to_directory(tmp_path / "uploaded" / name))

    train.report({}, Checkpoint(kept), checkpoint_dir_name="epoch-1", checkpoint_upload_fn=upload)
    train.report({}, Checkpoint(kept), checkpoint_upload_fn=upload, delete_local_checkpoint_after_upload=True)
    assert names[0] == "epoch-1"
    assert names[1].startswith("checkpoint_")
    assert [r["directory"] for r in session.reports] == [str(tmp_path / "uploaded" / name) for name in names]
    assert [r["move"] for r in session.reports] == [False, False]
    assert [r["name"] for r in session.reports] == ["epoch-1", None]
    assert not kept.exists()


def test_upload_fn_must_return_a_checkpoint(session: Any, kept: Path) -> None:
    with pytest.raises(ValueError, match="Return a Checkpoint"):
        train.report({}, Checkpoint(kept), checkpoint_upload_fn=lambda _, name: name)  # type: ignore
    assert session.reports == []


def test_validation_is_passed_on(session: Any, kept: Path) -> None:
    train.report({}, Checkpoint(kept), validation=True)
    train.report({}, Checkpoint(kept), validation=ValidationTaskConfig({"n": 3}, timeout_s=5))
    assert [r["validation"] for r in session.reports] == [
        {"fn_kwargs": {}, "timeout_s": None},
        {"fn_kwargs": {"n": 3}, "timeout_s": 5},
    ]


def test_wrong_arguments_are_refused_before_anything_is_sent(session: Any, kept: Path, tmp_path: Path) -> None:
    report: Any = train.report
    checkpoint = Checkpoint(kept)
    with pytest.raises(TypeError, match="pass a dict of metrics"):
        report(0.5)
    with pytest.raises(TypeError, match="pass Checkpoint"):
        report({}, str(kept))
    with pytest.raises(ValueError, match="does not exist"):
        report({}, Checkpoint(tmp_path / "gone"))
    with pytest.raises(ValueError, match="not a valid name"):
        report({}, checkpoint, checkpoint_dir_name="../x")
    with pytest.raises(ValueError, match="without a checkpoint"):
        report({}, validation=True)
    with pytest.raises(TypeError, match="validation=3"):
        report({}, checkpoint, validation=3)
    with pytest.raises(TypeError, match="use a CheckpointUploadMode"):
        report({}, checkpoint, checkpoint_upload_mode="SYNC")
    assert session.reports == []
    assert os.listdir(kept) == ["model"]


def test_get_checkpoint(session: Any, kept: Path) -> None:
    assert train.get_checkpoint() is None
    session.initial = Checkpoint(kept)
    assert train.get_checkpoint() == Checkpoint(kept)
    session.resumed_from = Offer("epoch-1", str(kept))
    assert train.get_checkpoint() == Checkpoint(Path(session.run_dir, "checkpoints", "epoch-1"))


def test_context(session: Any) -> None:
    session.rank, session.world_size, session.local_rank, session.local_world_size, session.node_rank = 3, 4, 1, 2, 1
    context = train.get_context()
    assert (context.get_world_rank(), context.get_world_size()) == (3, 4)
    assert (context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()) == (1, 2, 1)
    assert {context.get_experiment_name(), context.get_trial_name(), context.get_trial_id()} == {"a-run"}
    assert context.get_trial_dir() == session.run_dir
    assert context.get_trial_resources() == {}
    assert context.get_metadata() == {"owner": "tests"}
    storage = context.get_storage()
    assert storage.experiment_fs_path == os.path.join(storage.storage_path, storage.experiment_dir_name)
    assert storage.build_checkpoint_path_from_name("epoch-1") == f"{storage.experiment_fs_path}/epoch-1"
    assert storage.storage_fs_path == storage.storage_path
    far_away = StorageContext("s3://bucket/runs/one")
    assert far_away.build_checkpoint_path_from_name("epoch-1") == "bucket/runs/one/epoch-1"


def test_the_files_of_the_run_are_in_the_file_system_of_its_storage(session: Any) -> None:
    storage = train.get_context().get_storage()
    with storage.storage_filesystem.open_output_stream(f"{storage.experiment_fs_path}/mine.txt") as stream:
        stream.write(b"a note")
    assert isinstance(storage.storage_filesystem, pyarrow.fs.FileSystem)
    assert Path(session.run_dir, "mine.txt").read_text() == "a note"


def test_the_storage_of_a_run_in_a_bucket_is_not_the_directory_of_its_pending_files(session: Any) -> None:
    session.location = Location.parse("test(", "s3://bucket/runs/one?region=x")
    storage = train.get_context().get_storage()
    assert (storage.run_dir, storage.location) == ("s3://bucket/runs/one", session.location)


@pytest.mark.parametrize("run_dir", ["s3://bucket/runs/one", "/runs/one"])
def test_a_checkpoints_name_is_taken_from_its_path(run_dir: str) -> None:
    storage = StorageContext(run_dir)
    for path in (f"{run_dir}/checkpoints/epoch-1", storage.build_checkpoint_path_from_name("epoch-1")):
        assert storage.extract_checkpoint_dir_name_from_path(path) == "epoch-1"
    with pytest.raises(ValueError, match="pass a path below"):
        storage.extract_checkpoint_dir_name_from_path("/elsewhere/epoch-1")


def test_all_reported_checkpoints(session: Any) -> None:
    session.answers["checkpoints"] = [{"id": "epoch-1", "metrics": {"loss": 1}, "status": "VALIDATED"}]
    checkpoint = Checkpoint(Path(session.run_dir, "checkpoints", "epoch-1"))
    expected = [ReportedCheckpoint(checkpoint, {"loss": 1}, ReportedCheckpointStatus.VALIDATED)]
    assert train.get_all_reported_checkpoints() == expected
    assert train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED, timeout_s=3) == expected
    assert session.requests == [
        ("checkpoints", {"validated": True}, None),
        ("checkpoints", {"validated": False}, 3),
    ]
    with pytest.raises(TypeError, match="use a CheckpointConsistencyMode"):
        train.get_all_reported_checkpoints("COMMITTED")  # type: ignore[arg-type]


@pytest.mark.usefixtures("session")
def test_no_preemption_on_one_machine() -> None:
    assert train.get_preemption_info() is None


def test_barrier_and_broadcast(session: Any) -> None:
    session.answers = {"barrier": None, "broadcast": lambda body: body}
    collective.barrier()
    data = {"a": [1, 2]}
    assert collective.broadcast_from_rank_zero(data) is data
    session.rank = 1
    session.answers["broadcast"] = cloudpickle.dumps(data)
    assert collective.broadcast_from_rank_zero("not used") == data
    assert [kind for kind, _, _ in session.requests] == ["barrier", "broadcast", "broadcast"]
    assert session.requests[-1][1] is None


def test_a_large_broadcast_works_and_warns(session: Any) -> None:
    session.answers = {"broadcast": lambda body: body}
    with pytest.warns(UserWarning, match=r"2\.0 MiB"):
        collective.broadcast_from_rank_zero(bytes(2 << 20))


def test_dataset_shards(session: Any) -> None:
    assert train.get_dataset_shard() is None
    session.rank, session.world_size = 1, 2
    session.datasets = {"train": range(7), "valid": Whole([1, 2, 3])}
    assert list(train.get_dataset_shard("train")) == [1, 3, 5]
    assert list(train.get_dataset_shard("valid")) == [1, 2, 3]
    with pytest.raises(KeyError, match=r"the trainer got 'train', 'valid'"):
        train.get_dataset_shard("test")
    with pytest.raises(ValueError, match="name one of"):
        train.get_dataset_shard()
    session.datasets = {"train": lambda: range(4)}
    assert list(train.get_dataset_shard()) == [1, 3]


def test_what_cannot_be_split_is_refused_unless_it_is_given_whole(session: Any) -> None:
    stream = iter([1, 2])
    session.datasets = {"train": stream}
    with pytest.raises(TypeError, match="DataConfig"):
        train.get_dataset_shard("train")
    session.datasets = {"train": Whole(stream)}
    assert train.get_dataset_shard("train") is stream


def test_shards_cover_the_data_once_and_are_equally_long() -> None:
    shards = [train.DataShard(list(range(11)), rank, 3) for rank in range(3)]
    assert [len(shard) for shard in shards] == [3, 3, 3]
    assert sorted(item for shard in shards for item in shard) == list(range(9))


def test_batches_can_be_iterated_again() -> None:
    shard = train.DataShard(list(range(5)), 0, 1)
    batches = shard.iter_batches(batch_size=2)
    assert list(batches) == list(batches) == [[0, 1], [2, 3], [4]]
    assert list(shard.iter_batches(batch_size=2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(shard.iter_batches(batch_size=None)) == [[0, 1, 2, 3, 4]]
    shuffled = shard.iter_batches(batch_size=5, local_shuffle_buffer_size=5, local_shuffle_seed=1)
    assert list(shuffled) == list(shuffled) != [[0, 1, 2, 3, 4]]
    assert list(train.DataShard([], 0, 1).iter_batches()) == []
    with pytest.raises(ValueError, match="at least 1"):
        shard.iter_batches(batch_size=0)


@pytest.mark.usefixtures("session")
def test_torch_batches() -> None:
    import torch

    rows = [{"x": float(i), "y": i} for i in range(4)]
    shard = train.DataShard(rows, 0, 1)
    first = next(iter(shard.iter_torch_batches(batch_size=2, dtypes={"x": torch.float32})))
    assert torch.equal(first["x"], torch.tensor([0.0, 1.0]))
    assert first["x"].dtype == torch.float32
    assert first["y"].dtype == torch.int64
    pairs = train.DataShard([(torch.ones(2), 1)] * 3, 0, 1)
    features, labels = next(iter(pairs.iter_torch_batches(dtypes=torch.float64)))
    assert features.shape == (3, 2)
    assert labels.dtype == torch.float64
    own = shard.iter_torch_batches(batch_size=4, collate_fn=lambda items: torch.tensor([item["y"] for item in items]))
    assert [batch.tolist() for batch in own] == [[0, 1, 2, 3]]
