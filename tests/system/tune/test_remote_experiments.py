"""Experiments whose storage is an S3 server: the same, killed and restored there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.errors import NewerFormatError
from holdfast.store import values
from holdfast.store.location import Location
from holdfast.store.sealed import seal, unseal
from holdfast.train.torch import TorchTrainer
from support.tune import counting

SCRIPT = Path(counting.__file__)
WITHIN_S = 120.0


@pytest.mark.usefixtures("s3")
def test_a_killed_experiment_on_s3_goes_on(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/runs"
    process = subprocess.Popen([sys.executable, SCRIPT, url, "pbt"])
    deadline = time.monotonic() + WITHIN_S
    while not tune.Tuner.can_restore(f"{url}/counted") or not has_checkpoints(url):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(WITHIN_S)
    grid = tune.Tuner.restore(f"{url}/counted", counting.count).fit()
    assert len(grid) == 4
    assert grid.num_errors == 0
    assert max(result.metrics["epoch"] for result in grid) == counting.EPOCHS
    best = grid.get_best_result(metric="total", mode="max")
    with best.checkpoint.as_directory() as directory:
        assert f"[{counting.EPOCHS}, {best.metrics['total']}]" == Path(directory, "state.json").read_text()
    objects = Location.parse("url", f"{url}/counted").open(10.0)
    try:
        names = {info.key.rpartition("/")[2] for info in objects.list("")}
    finally:
        objects.close()
    assert {"params.json", "result.json", "progress.csv", "run.json"} <= names
    left = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file() and path.name != "epochs.log"]
    assert not left, "files were left in the scratch directory"


ROUNDS, REPORTS = 18, 3


def raises_after_its_last_report(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    for step in range(1, REPORTS + 1):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank-{rank}").write_text(str(step))
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
    if rank == 1:
        raise ValueError(f"round {config['round']}")


@pytest.mark.soak
@pytest.mark.usefixtures("s3")
def test_checkpoints_of_trials_whose_rank_raises_keep_their_metrics(bucket: str) -> None:
    """Rank 0 may not have made its last reports when rank 1 raises; what is committed has its metrics all the same."""
    url = f"{bucket}/runs"
    trainer = TorchTrainer(raises_after_its_last_report, scaling_config=train.ScalingConfig(num_workers=2))
    space = {"train_loop_config": {"round": tune.grid_search(list(range(ROUNDS)))}}
    run = tune.RunConfig(name="raises", storage_path=url, verbose=0)
    grid = tune.Tuner(trainer, param_space=space, run_config=run).fit()
    assert (len(grid), grid.num_errors) == (ROUNDS, ROUNDS)
    found = manifests(f"{url}/raises")
    assert len(found) >= ROUNDS
    assert [name for name, manifest in found.items() if set(manifest["metrics"]) < {"step"}] == []
    for result in grid:
        assert result.best_checkpoints
        assert all(metrics["step"] for _, metrics in result.best_checkpoints)


def manifests(url: str) -> dict[str, Any]:
    objects = Location.parse("url", url).open(10.0)
    try:
        keys = [info.key for info in objects.list("") if fnmatch(info.key, "*/checkpoints/*.json")]
        return {key: json.loads(objects.get(key)) for key in keys}
    finally:
        objects.close()


def has_checkpoints(url: str) -> bool:
    objects = Location.parse("url", f"{url}/counted").open(10.0)
    try:
        return any("/checkpoints/" in info.key for info in objects.list(""))
    finally:
        objects.close()


class _Ends(tune.Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.heard.append(trial.trial_id)


@pytest.mark.usefixtures("s3")
def test_fail_fast_on_s3_ends_with_the_results_and_callbacks_have_heard_of_them(bucket: str) -> None:
    callback = _Ends()
    run_config = tune.RunConfig(
        storage_path=f"{bucket}/runs",
        name="fast",
        failure_config=tune.FailureConfig(fail_fast=True),
        callbacks=[callback],
        verbose=0,
    )
    grid = tune.Tuner(_fail, run_config=run_config).fit()
    assert ["boom" in str(error) for error in grid.errors] == [True]
    assert len(callback.heard) == 1


def _fail(_config: dict[str, Any]) -> None:
    raise ValueError("boom")


@pytest.mark.usefixtures("s3")
def test_an_experiment_of_a_newer_version_is_refused_and_not_changed(bucket: str) -> None:
    url = f"{bucket}/runs"
    counting.tuner(url, samples=1).fit()
    objects = Location.parse("url", f"{url}/counted").open(10.0)
    try:
        fields = values.decode(unseal(objects.get("run.json")[:-1]) or b"")
        objects.put("run.json", seal(values.encode({**fields, "format": 2, "version": "7.8.9"})))
        before = {info.key: objects.get(info.key) for info in objects.list("")}
        for use in (
            lambda: counting.tuner(url, samples=1).fit(),
            lambda: tune.Tuner.restore(f"{url}/counted", counting.count).fit(),
        ):
            with pytest.raises(NewerFormatError, match=r"by Holdfast 7\.8\.9 in format 2"):
                use()
        assert {info.key: objects.get(info.key) for info in objects.list("")} == before
    finally:
        objects.close()
