"""Real runs, watched by a scraper, by readers of their log of events, and by experiment trackers."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import holdfast.train as train
from holdfast.store.location import Location
from holdfast.trackers.observing import observing
from holdfast.trackers.sender import Sender
from holdfast.train.tracking import MLflowCallback, TensorBoardCallback, WandbCallback
from support.cli.cli_shell import finish_job, start_job, wait_for_checkpoint


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free: int = server.getsockname()[1]
    monkeypatch.setenv("HOLDFAST_METRICS_PORT", str(free))
    return free


def scrape(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page: str = answer.read().decode()
        return page


def test_a_scraper_and_a_log_of_events(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EVENT_LOG", "1")
    job = start_job(tmp_path, raise_at=2, max_failures=1, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    page = scrape(port)
    assert 'holdfast_report_number{run="run"} 3.0' in page
    assert 'holdfast_failures_total{cause="user error",run="run"} 1' in page
    assert 'holdfast_restarts_total{cause="user error",run="run"} 1' in page
    assert 'holdfast_world_size{run="run"} 2' in page
    assert re.search(r'^holdfast_checkpoint_seconds_count\{run="run"\} [23]\.0$', page, re.MULTILINE)
    for line in page.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) holdfast_\w+ .*|holdfast_\w+\{(\w+="[^"]*",?)+\} \S+', line)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scrape(port, "/elsewhere")
    (tmp_path / "go").touch()
    finish_job(job)
    (file,) = (tmp_path / "run" / "events").glob("*.jsonl")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert all({"time", "level", "event", "run", "message"} <= set(entry) for entry in entries)
    names = [entry["event"] for entry in entries]
    assert (
        names.index("DriverStarted") < names.index("AttemptStarted") < names.index("Failure") < names.index("RunEnded")
    )
    (failure,) = (entry for entry in entries if entry["event"] == "Failure")
    assert (failure["level"], failure["cause"], failure["rank"], failure["verdict"]) == (
        "error",
        "user error",
        1,
        "retry",
    )
    assert failure["message"] == "rank 1 raised ValueError: planned failure at 2"
    assert sum(name == "Committed" for name in names) == 5
    said = [entry["message"] for entry in entries]
    assert "attempt 1 with 2 workers from the beginning" in said
    assert "checkpoint_000005 is committed (report 5)" in said
    assert all(said)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entries[0]["time"])


def test_a_port_that_is_taken_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HOLDFAST_METRICS_PORT", str(server.getsockname()[1]))
        job = start_job(tmp_path, steps=1)
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 0
    assert "Another run may use the port" in errors


def test_wrong_ports_are_refused(tmp_path: Path) -> None:
    location = Location.parse("run", tmp_path)
    with (
        pytest.raises(ValueError, match="use a port from 1 to 65535"),
        observing("run", location, port=70000, host="127.0.0.1", event_log=False),
    ):
        pass


def test_nothing_is_there_unless_it_is_asked_for(tmp_path: Path) -> None:
    with observing("run", Location.parse("run", tmp_path), port=0, host="127.0.0.1", event_log=False) as observer:
        assert observer is None


def test_a_log_that_cannot_be_written_hurts_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events").write_text("a file, where a directory is wanted")
    fit(tmp_path, [], HOLDFAST_EVENT_LOG="1")
    assert "the event log stops here" in caplog.text


def train_fn() -> None:
    for step in range(3):
        train.report({"step": step * 10, "loss": {"train": 1.0 / (step + 1)}, "note": "text", "odd": float("nan")})


def fit(storage: Path, callbacks: list[train.UserCallback], **environment: str) -> None:
    with pytest.MonkeyPatch.context() as context:
        for name, value in environment.items():
            context.setenv(name, value)
        train.DataParallelTrainer(
            train_fn,
            train_loop_config={"lr": 0.1},
            scaling_config=train.ScalingConfig(num_workers=0),
            run_config=train.RunConfig(name="run", storage_path=str(storage), callbacks=callbacks, verbose=0),
        ).fit()


def test_tensorboard(tmp_path: Path) -> None:
    callback = TensorBoardCallback()
    fit(tmp_path, [callback])
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    content = file.read_bytes()  # there is no end to be waited for
    callback.close()
    assert content.count(b"loss/train") == 3
    assert b"odd" not in content
    assert b"note" not in content


class Notes(list[tuple[str, tuple[Any, ...], dict[str, Any]]]):
    def call(self, name: str, answer: Any = None) -> Any:
        def note(*args: Any, **kwargs: Any) -> Any:
            self.append((name, args, kwargs))
            return answer

        return note

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self if called == name]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    run = SimpleNamespace(info=SimpleNamespace(run_id="r1"))
    answers = {"get_experiment_by_name": None, "create_experiment": "e1", "search_runs": [], "create_run": run}
    names = ["log_param", "log_metric", "set_terminated", *answers]
    client = SimpleNamespace(**{name: notes.call(name, answers.get(name)) for name in names})
    module = ModuleType("mlflow.tracking")
    module.MlflowClient = notes.call("client", client)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", module)
    callback = MLflowCallback("file:x", experiment_name="mine")
    fit(tmp_path, [callback])
    callback.close()
    callback.close()
    assert notes.of("log_param") == [(("r1", "lr", 0.1), {})]
    losses = [(args, kwargs) for args, kwargs in notes.of("log_metric") if args[1] == "loss/train"]
    assert losses == [(("r1", "loss/train", 1.0 / n), {"step": 10 * (n - 1)}) for n in (1, 2, 3)]
    assert notes.of("set_terminated") == [(("r1",), {"status": "FINISHED"})]


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    run = SimpleNamespace(
        log=notes.call("log"), finish=notes.call("finish"), config=SimpleNamespace(update=notes.call("update"))
    )
    module = ModuleType("wandb")
    module.init = notes.call("init", run)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    callback = WandbCallback("a-project", step="step")
    fit(tmp_path, [callback])
    callback.close()
    ((_, options),) = notes.of("init")
    assert (options["id"], options["project"], options["config"]) == ("run", "a-project", {"lr": 0.1})
    assert [kwargs["step"] for _, kwargs in notes.of("log")] == [0, 10, 20]
    assert notes.of("finish") == [((), {"exit_code": 0})]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="WandbCallback needs wandb: pip install wandb"):
        WandbCallback()


def test_a_tracker_that_does_not_answer_hurts_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("nobody is there")

    module = ModuleType("wandb")
    module.init = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    callback = WandbCallback()
    fit(tmp_path, [callback])
    callback.close()
    assert caplog.text.count("a report was not logged, and training continues: ConnectionError: nobody is there") == 1


def test_a_tracker_that_is_slow_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    going, asked = threading.Event(), threading.Event()
    sender = Sender("Slow", last_s=0.05)
    sender.put(lambda: (asked.set(), going.wait(30))[0])
    sender.put(lambda: None)
    assert asked.wait(30)
    sender.close()
    assert "Slow: about" in caplog.text
    going.set()
    sender._thread.join(30)
    assert not sender._thread.is_alive()


def test_curves_that_cannot_be_written_hurt_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("a file, where a directory is wanted")
    fit(tmp_path, [TensorBoardCallback(str(tmp_path / "taken" / "curves"))])
    assert caplog.text.count("TensorBoardCallback: the curves in") == 1
