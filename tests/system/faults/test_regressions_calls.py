"""Defects that a review found in what user code may call and when: each test failed before its mending."""

from __future__ import annotations

import io
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_regressions import PATIENCE_S, fit, wait_until

import holdfast.train as train
from holdfast.worker.session import current


def save(directory: Path, **options: Any) -> None:
    directory.mkdir()
    (directory / "file").write_text("content")
    train.report({"saved": 1}, checkpoint=train.Checkpoint(str(directory)), **options)


def test_a_validation_function_that_asks_the_run_gets_an_error_and_disturbs_nobody(tmp_path: Path) -> None:
    def validate(_: train.Checkpoint) -> dict[str, Any]:
        wait_until((tmp_path / "in the barrier").exists)
        try:
            train.get_all_reported_checkpoints(timeout_s=2.0)
        except Exception as error:
            (tmp_path / "asked").touch()
            return {"got": str(error)}
        return {}

    def fn() -> None:
        if train.get_context().get_world_rank() == 0:
            save(tmp_path / "files", validation=True)
            (tmp_path / "in the barrier").touch()
        else:
            train.report({})
            wait_until((tmp_path / "asked").exists)
        train.collective.barrier()

    failure = train.FailureConfig(hang_timeout_s=5.0)
    options: dict[str, Any] = {"failure_config": failure, "validation_config": train.ValidationConfig(validate)}
    result = fit(tmp_path, fn, workers=2, **options)
    assert "a validation function" in result.best_checkpoints[0][1]["got"]


def test_the_time_out_of_a_validation_config_is_in_force(tmp_path: Path) -> None:
    def validate(_: train.Checkpoint) -> dict[str, Any]:
        time.sleep(PATIENCE_S)
        return {}

    def fn() -> list[str]:
        save(tmp_path / "files", validation=True)
        return [checkpoint.status.value for checkpoint in train.get_all_reported_checkpoints()]

    config = train.ValidationConfig(validate, train.ValidationTaskConfig(timeout_s=0.2))
    assert fit(tmp_path, fn, validation_config=config).return_value == ["VALIDATION_TIMEOUT"]


def test_a_manifest_that_is_damaged_meanwhile_is_set_aside(tmp_path: Path) -> None:
    def fn() -> list[str]:
        for number in range(2):
            save(tmp_path / str(number), checkpoint_upload_mode=train.CheckpointUploadMode.SYNC)
        (tmp_path / "run" / "checkpoints" / "checkpoint_000001.json").write_text("damaged")
        return [Path(listed.checkpoint.path).name for listed in train.get_all_reported_checkpoints()]

    result = fit(tmp_path, fn)
    assert result.return_value == ["checkpoint_000002"]
    assert len(result.best_checkpoints) == 1


def test_a_report_in_a_signal_handler_that_interrupted_a_report_is_an_error(tmp_path: Path) -> None:
    def fn() -> str:
        signal.signal(signal.SIGUSR1, lambda *_: train.report({"from": "the handler"}))
        channel = current()._channel
        real = channel.send

        def interrupted(message: Any) -> None:
            channel.send = real  # type: ignore[method-assign]
            signal.raise_signal(signal.SIGUSR1)
            real(message)

        channel.send = interrupted  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="set a flag in the handler"):
            train.report({"step": 1})
        train.report({"step": 2})
        return "did not hang"

    failure = train.FailureConfig(hang_timeout_s=5.0)
    result = fit(tmp_path, fn, failure_config=failure)
    assert result.return_value == "did not hang"
    assert result.metrics == {"step": 2}


class SlowStream(io.StringIO):
    def flush(self) -> None:
        time.sleep(0.2)


def test_an_interrupt_in_process_is_a_stop_and_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the exception is told long before the interrupt reaches the engine."""
    monkeypatch.setattr(sys, "stdout", SlowStream())
    with pytest.raises(KeyboardInterrupt, match="the run was stopped"):
        fit(tmp_path, lambda: signal.raise_signal(signal.SIGINT), workers=0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_temporary_files_of_a_worker_that_returned_are_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    path = fit(tmp_path, lambda: tempfile.mkdtemp()).return_value
    assert [str(left) for left in (tmp_path / "tmp").iterdir()] == [path]


def test_a_run_within_a_run_in_process(tmp_path: Path) -> None:
    def fn() -> None:
        inner = fit(tmp_path, lambda: train.report({"of": "the inner"}), workers=0, name="inner")
        train.report({"of": "the outer", "inner": inner.metrics})

    assert fit(tmp_path, fn, workers=0).metrics == {"of": "the outer", "inner": {"of": "the inner"}}


def test_runs_in_process_in_two_threads_are_not_mixed_up(tmp_path: Path) -> None:
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        def fn() -> None:
            for _ in range(20):
                train.report({"run": train.get_context().get_experiment_name(), "thread": name})
                time.sleep(0.005)

        found[name] = fit(tmp_path, fn, workers=0, name=name).metrics

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == {name: {"run": name, "thread": name} for name in ("one", "two")}


def test_an_agents_thread_that_ends_is_an_error_and_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise OSError("no memory file")

    monkeypatch.setattr("holdfast.platform.process_control.anonymous_file", fails)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(train.ControllerError, match="agent's thread ended"):
        fit(tmp_path, lambda: train.report({}), workers=0)
