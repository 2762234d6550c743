"""A trainer as a trainable, and a trainer inside of a trainable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.tune.trainable import TuneReportCallback, function_entry, trainer_resources, trial_trainer
from support.tune.one_trial import rows, run_trial

WITHIN_S = 120.0


def loop(config: dict[str, Any]) -> None:
    train.report({"lr": config["lr"], "world": train.get_context().get_world_size()})


def base(**more: Any) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        loop,
        train_loop_config={"lr": 1, "model": {"layers": 2, "width": 8}},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}),
        datasets={"train": [1], "test": [2]},
        **more,
    )


def test_the_config_goes_into_what_the_trainer_has() -> None:
    trainer = base()
    run_config = train.RunConfig(name="trial-1")
    config = {
        "train_loop_config": {"lr": 3, "model": {"width": 16}},
        "scaling_config": {"num_workers": 1},
        "datasets": {"train": [9]},
    }
    made = trial_trainer(trainer, config, run_config)
    assert made.train_loop_config == {"lr": 3, "model": {"layers": 2, "width": 16}}
    assert made.scaling_config == train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2})
    assert made.datasets == {"train": [9], "test": [2]}
    assert made.run_config is run_config
    assert trainer.train_loop_config == {"lr": 1, "model": {"layers": 2, "width": 8}}
    assert (trainer.scaling_config.num_workers, trainer.datasets["train"]) == (2, [1])
    assert trial_trainer(trainer, {}).run_config is trainer.run_config


def test_whole_configs_replace_those_of_the_trainer() -> None:
    made = trial_trainer(base(), {"scaling_config": train.ScalingConfig(num_workers=3), "metadata": {"a": 1}})
    assert made.scaling_config == train.ScalingConfig(num_workers=3)
    assert made.metadata == {"a": 1}


def test_a_trial_needs_what_its_workers_need() -> None:
    assert trainer_resources(base(), {}).bundles == [{"CPU": 2.0}] * 2
    assert trainer_resources(base(), {"scaling_config": {"num_workers": 1}}).bundles == [{"CPU": 2.0}]


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"lr": 1}, ValueError, r"goes into param_space\['train_loop_config'\], as in .*'lr'"),
        ({"run_config": 1}, ValueError, "pass it to the Tuner"),
        ({"scaling_config": {"workers": 1}}, ValueError, "ScalingConfig has no workers"),
        ({"scaling_config": {"num_workers": -1}}, ValueError, "num_workers=-1"),
        ({"scaling_config": 3}, TypeError, "scaling_config=3"),
        ({"train_loop_config": 3}, TypeError, "train_loop_config=3"),
        ({"datasets": 3}, TypeError, "datasets=3"),
    ],
)
def test_wrong_spaces_are_refused(config: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        trial_trainer(base(), config)


def test_a_trials_trainer_runs(tmp_path: Path) -> None:
    run_config = train.RunConfig(name="trial", storage_path=str(tmp_path), verbose=0)
    config = {"train_loop_config": {"lr": 0.5}, "scaling_config": {"num_workers": 1}}
    result = trial_trainer(base(), config, run_config).fit()
    assert result.metrics is not None
    assert (result.metrics["lr"], result.metrics["world"]) == (0.5, 1)


def inner_loop(config: dict[str, Any]) -> None:
    """Counts to four from its checkpoint; may kill the trial that it runs in once, or wait for somebody to do it."""
    checkpoint = train.get_checkpoint()
    start = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    for step in range(start + 1, 5):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            saved = train.Checkpoint.from_directory(directory) if train.get_context().get_world_rank() == 0 else None
            mode = train.CheckpointUploadMode.SYNC
            train.report({"step": step, "start": start}, checkpoint=saved, checkpoint_upload_mode=mode)
        if step == 2 and start == 0 and config.get("then"):
            if config["then"] == "kill the trial" and train.get_context().get_world_rank() == 0:
                os.kill(config["trial"], signal.SIGKILL)
            Path(config["storage"], f"waits-{train.get_context().get_world_rank()}").touch()
            time.sleep(WITHIN_S)


def with_inner_trainer(config: dict[str, Any]) -> dict[str, Any]:
    run_config = train.RunConfig(
        name="inner", storage_path=config["storage"], verbose=0, callbacks=[TuneReportCallback()]
    )
    result = train.DataParallelTrainer(
        inner_loop,
        train_loop_config={**config, "trial": os.getpid()},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=run_config,
    ).fit()
    assert result.metrics is not None
    return {"step": result.metrics["step"], "last": True}


def test_a_trainer_inside_of_a_trial(tmp_path: Path) -> None:
    """Its workers' reports are the trial's, in their order, and its checkpoints are its own."""
    storage = tmp_path / "inner"
    result = run_trial(tmp_path, function_entry(with_inner_trainer), {"storage": str(storage)})
    assert [row["step"] for row in rows(result)] == [1, 2, 3, 4, 4]
    assert rows(result)[0]["checkpoint_path"].startswith(f"{storage}/inner/checkpoints/")
    assert result.metrics["last"] is True
    inner = train.Result.from_path(str(storage / "inner"))
    assert len(inner.best_checkpoints) == 4


def test_a_killed_trial_takes_its_inner_run_along_and_goes_on_with_it(tmp_path: Path) -> None:
    storage = tmp_path / "inner"
    failures = train.FailureConfig(max_failures=1, backoff_s=0)
    config = {"storage": str(storage), "then": "kill the trial"}
    result = run_trial(tmp_path, function_entry(with_inner_trainer), config, failure_config=failures)
    assert result.metrics["step"] == 4
    assert [row["start"] for row in rows(result)][-3:-1] == [2, 2]  # it went on from the second step


def test_a_sigterm_ends_a_trial_that_waits_in_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a stopped trial does, in the callback of its inner run."""
    module = "holdfast.tune.trainable.report_callback"
    monkeypatch.setattr(f"{module}.session_for", lambda _function: None)
    told: list[dict[str, Any]] = []

    def report(metrics: dict[str, Any]) -> None:
        told.append(metrics)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(WITHIN_S)

    def asked(_number: int, _frame: Any) -> None:
        """As the inner driver takes a SIGTERM, and would here make the test wait."""

    monkeypatch.setattr(f"{module}.report", report)
    before = signal.signal(signal.SIGTERM, asked)
    try:
        context: Any = None
        with pytest.raises(SystemExit) as ended:
            TuneReportCallback().after_report(context, [{"x": 1}, {"x": 2}], None)
        assert signal.getsignal(signal.SIGTERM) is asked
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (told, ended.value.code) == ([{"x": 1}], 128 + signal.SIGTERM)


def test_the_callback_is_for_trials() -> None:
    with pytest.raises(RuntimeError, match=r"TuneReportCallback.* works only inside"):
        TuneReportCallback()


SCRIPT = """
import sys
from pathlib import Path
from support.tune.one_trial import run_trial
from test_trial_trainer import with_inner_trainer
from holdfast.tune.trainable import function_entry

run_trial(Path({storage!r}), function_entry(with_inner_trainer), {{"storage": {storage!r}, "then": "wait"}})
"""


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_an_inner_run_is_left_when_the_driver_ends(tmp_path: Path, sig: signal.Signals) -> None:
    """That no process is left is checked at the end of every test."""
    storage = tmp_path / "storage"
    storage.mkdir()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(storage=str(storage)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])}
    with subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + WITHIN_S
        while not all((storage / f"waits-{rank}").exists() for rank in range(2)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(sig)
        expected = -sig if sig == signal.SIGKILL else 128 + sig
        assert process.wait(WITHIN_S) == expected
