"""A newer version of Holdfast has written into a run: this one refuses it, says so, and changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast.train as train
from holdfast import tune
from holdfast.errors import NewerFormatError
from support.faults.job import expected, trainer
from support.faults.newer_format import make_newer

SAID = r"written by Holdfast 7\.8\.9 in format 2\. .*reads formats up to 1; nothing was changed"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and an experiment."""
    storage = tmp_path_factory.mktemp("made")
    assert trainer(str(storage), "run", {"steps": 3, "pause_s": 0}).fit().return_value == expected(3)
    shutil.rmtree(storage / "run" / "metrics" / "attempt-0002", ignore_errors=True)
    make_tuner(storage).fit()
    return storage


@pytest.fixture
def storage(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "storage")
    return tmp_path / "storage"


def trial(config: dict[str, int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").write_text("content")
        tune.report({"value": config["x"]}, checkpoint=tune.Checkpoint.from_directory(directory))


def make_tuner(storage: Path) -> tune.Tuner:
    run_config = tune.RunConfig(storage_path=str(storage), name="experiment", verbose=0)
    return tune.Tuner(trial, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config)


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def fit_run(storage: Path) -> object:
    return trainer(str(storage), "run", {"steps": 5, "pause_s": 0}).fit()


def restore_run(storage: Path) -> object:
    return train.DataParallelTrainer.restore(str(storage / "run"), lambda: None).fit()


def result_of_run(storage: Path) -> object:
    return train.Result.from_path(str(storage / "run"))


def fit_experiment(storage: Path) -> object:
    return make_tuner(storage).fit()


def restore_experiment(storage: Path) -> object:
    return tune.Tuner.restore(str(storage / "experiment"), trial).fit()


@pytest.mark.parametrize("file", ["run.json", "checkpoints/checkpoint_000002.json"])
@pytest.mark.parametrize("use", [fit_run, restore_run, result_of_run])
def test_a_run_is_refused_and_not_touched(storage: Path, use: Callable[[Path], object], file: str) -> None:
    make_newer(storage / "run" / file)
    before = everything(storage)
    with pytest.raises(NewerFormatError, match=SAID):
        use(storage)
    assert everything(storage) == before


@pytest.mark.parametrize("file", ["run.json", "trial"])
@pytest.mark.parametrize("use", [fit_experiment, restore_experiment])
def test_an_experiment_is_refused_and_not_touched(storage: Path, use: Callable[[Path], object], file: str) -> None:
    home = storage / "experiment"
    make_newer(home / file if file == "run.json" else next(home.glob("*/checkpoints/*.json")))
    before = everything(storage)
    with pytest.raises(NewerFormatError, match=SAID):
        use(storage)
    assert everything(storage) == before


def test_run_json_says_which_version_wrote_it(storage: Path) -> None:
    import json

    import holdfast

    assert json.loads((storage / "run" / "run.json").read_text())["version"] == holdfast.__version__


@pytest.mark.parametrize("command", [["show"], ["verify"], ["logs"], ["checkpoints"], ["checkpoints", "verify"]])
@pytest.mark.parametrize("name", ["run", "experiment"])
def test_commands_say_so_in_one_line(storage: Path, command: list[str], name: str) -> None:
    make_newer(storage / name / "run.json")
    before = everything(storage)
    done = holdfast(*command, str(storage / name))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "written by Holdfast 7.8.9 in format 2" in done.stderr
    assert everything(storage) == before


def test_no_checkpoint_is_deleted_of_a_newer_run(storage: Path) -> None:
    make_newer(storage / "run" / "checkpoints" / "checkpoint_000002.json")
    before = everything(storage)
    done = holdfast("checkpoints", "delete", str(storage / "run"), "--keep", "1", "--yes")
    assert done.returncode == 1
    assert "written by Holdfast 7.8.9 in format 2" in done.stderr
    assert everything(storage) == before


def test_ls_lists_the_other_runs(storage: Path) -> None:
    make_newer(storage / "run" / "run.json")
    done = holdfast("ls", str(storage))
    assert done.returncode == 1
    assert "experiment  finished" in done.stdout
    assert "run   unreadable" in done.stdout
    assert "written by Holdfast 7.8.9 in format 2" in done.stderr


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
