"""Files of a run are damaged, or the disk is full: it is noticed, named, and survived where an older good state is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast.train as train
from holdfast.errors import StorageError
from holdfast.runs.stored_experiment import load
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from support.faults.job import expected, trainer

STEPS = 6
HALF = 3


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a run with three committed checkpoints and more to do."""
    storage = tmp_path_factory.mktemp("half")
    assert trainer(str(storage), "run", {"steps": HALF, "pause_s": 0}).fit().return_value == expected(HALF)
    return storage


@pytest.fixture
def storage(half_done: Path, tmp_path: Path) -> Path:
    shutil.copytree(half_done, tmp_path / "storage")
    return tmp_path / "storage"


def files_of(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.stat().st_size)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [flip_a_bit, truncate, empty, remove]


def go_on(storage: Path, capfd: pytest.CaptureFixture[str]) -> tuple[train.Result, str]:
    result = trainer(str(storage), "run", {"steps": STEPS, "pause_s": 0, "verbose": 1}).fit()
    return result, capfd.readouterr().err


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_survives_damage_to_any_of_its_files(
    damage: Callable[[Path], None], half_done: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(files_of(half_done / "run")):
        storage = tmp_path / str(number)
        shutil.copytree(half_done, storage)
        damage(storage / "run" / name)
        result, said = go_on(storage, capfd)
        assert result.return_value == expected(STEPS), name
        if name.startswith(f"checkpoints/checkpoint_00000{HALF}"):
            assert f"checkpoint_00000{HALF}" in said, f"damage to {name} was not named"
            assert "starting workers: from checkpoint_000002" in said
        if name.startswith("journal/") and damage in (flip_a_bit, truncate):
            assert "journal/" in said, f"damage to {name} was not named"


def test_every_checkpoint_damaged_starts_from_the_beginning(storage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in (storage / "run" / "checkpoints").glob("*/rank-0.json"):
        flip_a_bit(path)
    result, said = go_on(storage, capfd)
    assert result.return_value == expected(STEPS)
    assert said.count("is damaged and was set aside") == HALF
    assert "starting workers: from the beginning" in said


def test_a_checkpoint_damaged_between_two_attempts(tmp_path: Path) -> None:
    """Found at the restart after a worker's failure, in the same driver."""

    def fn() -> int:
        resumed = train.get_checkpoint()
        if resumed is not None:
            return int(Path(resumed.path, "step").read_text())
        for step in range(3):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text(str(step))
                checkpoint = train.Checkpoint.from_directory(directory)
                train.report({}, checkpoint=checkpoint, checkpoint_upload_mode=train.CheckpointUploadMode.SYNC)
        flip_a_bit(Path(train.get_checkpoint().path, "step"))
        raise ValueError("after the damage")

    failure = train.FailureConfig(max_failures=1)
    config = train.RunConfig(name="run", storage_path=str(tmp_path), failure_config=failure, verbose=0)
    assert train.DataParallelTrainer(fn, run_config=config).fit().return_value == 1


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "tiny"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a file system of 4 MB can only be mounted by root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_is_a_clear_error_and_hurts_nothing(tiny_disk: Path) -> None:
    def fn() -> None:
        checkpoint = train.get_checkpoint()
        done = int(Path(checkpoint.path, "step").read_text()) if checkpoint else 0
        for step in range(done, 40):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "weights").write_bytes(os.urandom(300_000))
                Path(directory, "step").write_text(str(step + 1))
                train.report({"step": step + 1}, checkpoint=train.Checkpoint.from_directory(directory))

    def attempt() -> None:
        train.DataParallelTrainer(
            fn, run_config=train.RunConfig(name="run", storage_path=str(tiny_disk), verbose=0)
        ).fit()

    with pytest.raises(train.TrainingFailedError, match=r"[Nn]o space"):
        attempt()
    checkpoints = load(tiny_disk / "run").checkpoints
    assert 5 < len(checkpoints) < 14
    for _, location, metrics in checkpoints:
        assert int(Path(str(location), "step").read_text()) == metrics["step"]
        assert Path(str(location), "weights").stat().st_size == 300_000


def test_no_permission_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((StorageError, OSError), match="file"):
        trainer(str(tmp_path / "file"), "run", {}).fit()


def test_no_pickle_is_read_from_storage(storage: Path) -> None:
    """A process in which unpickling is forbidden reads, resumes and reports everything that is in a run directory."""
    script = f"""
import io, pickle, sys
import cloudpickle
from holdfast.driver.runtime import Driver
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.lease import Lease
from holdfast.store.layout import RunLayout
from holdfast.store import journal, runfile
from holdfast.train import DataParallelTrainer, Result
from pathlib import Path
def refuse(*_, **__): raise SystemExit("a pickle was read")
pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = cloudpickle.load = cloudpickle.loads = refuse
run = Path({str(storage / "run")!r})
layout = RunLayout(run)
assert Result.from_path(run).metrics["step"] == {HALF}
assert DataParallelTrainer.can_restore(run)
restored = DataParallelTrainer.restore(run, train_loop_per_worker=print)
journal.read(layout), runfile.read(layout)
store = CheckpointStore(layout)
assert [store.verify(m.id).report for m in store.scan()[0]] == [1, 2, 3]
print("nothing was unpickled")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "nothing was unpickled\n", done.stderr


def test_nothing_in_a_run_directory_is_a_pickle(half_done: Path) -> None:
    for path in (half_done / "run").rglob("*"):
        if path.is_file():
            assert not path.read_bytes().startswith(b"\x80"), path


def test_a_journal_of_an_earlier_epoch_is_never_written_again(storage: Path, capfd: pytest.CaptureFixture[str]) -> None:
    segment = storage / "run" / "journal" / "000001.jsonl"
    before = segment.read_bytes()
    go_on(storage, capfd)
    assert segment.read_bytes() == before
    records, damage = journal.read(RunLayout(storage / "run"))
    assert not damage
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
