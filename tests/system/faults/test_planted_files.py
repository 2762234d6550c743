"""Somebody else has written into a run's directory: nothing outside of it is read, written or deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ControllerError
from holdfast.runs.stored_experiment import load
from holdfast.store import journal, values
from holdfast.store.layout import RunLayout
from holdfast.store.sealed import seal, unseal
from support.faults.job import expected, trainer

STEPS = 6
HALF = 3
LAST = "checkpoint_000003"
UNREADABLE = [
    "run.json",
    "journal/000001.jsonl",
    "metrics/attempt-0001/rank-0.jsonl",
    ".staging/attempt-0001/rank-0.jsonl",
]


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("half")
    assert trainer(str(storage), "run", {"steps": HALF, "pause_s": 0}).fit().return_value == expected(HALF)
    return storage


@pytest.fixture
def run(half_done: Path, tmp_path: Path) -> Path:
    shutil.copytree(half_done, tmp_path / "storage")
    return tmp_path / "storage" / "run"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What belongs to somebody else, with the content of a checkpoint's file."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "precious").write_text("mine")
    return directory


def change_manifest(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = run / "checkpoints" / f"{LAST}.json"
    fields = values.decode(unseal(path.read_bytes()[:-1]) or b"")
    change(fields)
    path.write_bytes(seal(values.encode(fields)))


def names_a_path(path: str) -> Callable[[Path, Path], None]:
    def plant(run: Path, outside: Path) -> None:
        named = path.replace("OUTSIDE", str(outside))
        change_manifest(run, lambda fields: fields["files"][0].update(path=named))

    return plant


def links_a_file(run: Path, outside: Path) -> None:
    file = run / "checkpoints" / LAST / "rank-0.json"
    file.rename(outside / "moved")
    file.symlink_to(outside / "moved")


def links_the_directory(run: Path, outside: Path) -> None:
    directory = run / "checkpoints" / LAST
    directory.rename(outside / LAST)
    directory.symlink_to(outside / LAST)


def makes_the_manifest_a_device(run: Path, outside: Path) -> None:
    manifest = run / "checkpoints" / f"{LAST}.json"
    manifest.rename(outside / "manifest")
    manifest.symlink_to("/dev/zero")


def makes_the_manifest_a_fifo(run: Path, outside: Path) -> None:
    manifest = run / "checkpoints" / f"{LAST}.json"
    manifest.rename(outside / "manifest")
    os.mkfifo(manifest)


PLANTED = {
    "absolute": names_a_path("OUTSIDE/precious"),
    "up": names_a_path("../../../../outside/precious"),
    "nul": names_a_path("a\0b"),
    "link to a file": links_a_file,
    "link to a directory": links_the_directory,
    "link to a device": makes_the_manifest_a_device,
    "FIFO": makes_the_manifest_a_fifo,
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_the_checkpoint_is_set_aside_and_the_run_resumes_from_the_one_before(
    run: Path, outside: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(run, outside)
    before = {path: path.read_bytes() for path in sorted(outside.rglob("*")) if path.is_file()}
    result = trainer(str(run.parent), "run", {"steps": STEPS, "pause_s": 0}).fit()
    assert result.return_value == expected(STEPS)
    assert [row["step"] for row in load(run).rows] == list(range(1, STEPS + 1))
    assert {path: path.read_bytes() for path in sorted(outside.rglob("*")) if path.is_file()} == before
    records, _ = journal.read(RunLayout(run))
    assert [record.body["id"] for record in records if record.kind == "Damaged"] == [LAST]


@pytest.mark.parametrize("kind", ["device", "fifo", "directory"])
@pytest.mark.parametrize("file", UNREADABLE)
def test_a_run_resumes_although_a_file_of_it_can_never_be_read(run: Path, file: str, kind: str) -> None:
    path = run / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make: dict[str, Callable[[Path], object]] = {"fifo": os.mkfifo, "directory": os.mkdir}
    make.get(kind, lambda path: path.symlink_to("/dev/zero"))(path)
    if (file, kind) == ("run.json", "directory"):
        with pytest.raises(ControllerError, match=r"run\.json: Is a directory"):
            trainer(str(run.parent), "run", {"steps": STEPS, "pause_s": 0}).fit()
        return
    result = trainer(str(run.parent), "run", {"steps": STEPS, "pause_s": 0}).fit()
    assert result.return_value == expected(STEPS)


@pytest.mark.parametrize("time", [1e300, float("nan"), float("-inf"), -5.0])
def test_a_run_resumes_although_a_record_has_no_true_time(run: Path, time: float) -> None:
    segment = run / "journal" / "000001.jsonl"
    number = len(segment.read_bytes().splitlines()) + 1
    with segment.open("ab") as file:
        file.write(journal.line(number, time, "Nothing", {}))
    result = trainer(str(run.parent), "run", {"steps": STEPS, "pause_s": 0}).fit()
    assert result.return_value == expected(STEPS)
    assert result.ledger is not None
