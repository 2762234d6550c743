"""``HOLDFAST_NOTIFY``: a real command and a real server hear how runs and experiments end, and cannot change that."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig, TrainingFailedError


def fit(storage: Path, fails: bool = False) -> None:
    def train_fn() -> None:
        train.report({"loss": 0.5})
        if fails:
            raise ValueError("the disk is full")

    config = RunConfig(storage_path=str(storage), name="watched", verbose=0)
    DataParallelTrainer(train_fn, scaling_config=ScalingConfig(num_workers=0), run_config=config).fit()


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    heard: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/broken" else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()
            thread.join(10)


def test_a_command_hears_how_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = tmp_path / "heard"
    monkeypatch.setenv("HOLDFAST_NOTIFY", f'cat > {heard}; echo "$HOLDFAST_NOTIFY_OUTCOME" >> {heard}-outcome')
    fit(tmp_path)
    message = json.loads(heard.read_text())
    assert message == {
        "text": "Holdfast run 'watched' finished",
        "content": "Holdfast run 'watched' finished",
        "kind": "run",
        "name": "watched",
        "path": str(tmp_path / "watched"),
        "outcome": "finished",
        "reason": "",
    }
    with pytest.raises(TrainingFailedError):
        fit(tmp_path / "second", fails=True)
    message = json.loads(heard.read_text())
    assert message["outcome"] == "failed"
    assert "the disk is full" in message["reason"]
    assert (tmp_path / "heard-outcome").read_text().split() == ["finished", "failed"]


def test_a_server_hears_of_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, list[dict[str, Any]]]
) -> None:
    url, heard = server
    monkeypatch.setenv("HOLDFAST_NOTIFY", f"{url}/hook?secret")
    config = RunConfig(storage_path=str(tmp_path), name="search", verbose=0)
    tune.Tuner(lambda config: {"loss": config["x"]}, param_space={"x": 1}, run_config=config).fit()
    assert [(one["kind"], one["name"], one["outcome"]) for one in heard] == [("experiment", "search", "finished")]


@pytest.mark.parametrize("target", ["exit 3", "{url}/broken", "http://127.0.0.1:1/secret"])
def test_a_notification_that_fails_is_a_warning(
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: tuple[str, list[dict[str, Any]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOLDFAST_NOTIFY", target.format(url=server[0]))
    with caplog.at_level(logging.WARNING, "holdfast"):
        fit(tmp_path)
    (warning,) = [record.getMessage() for record in caplog.records if "HOLDFAST_NOTIFY" in record.getMessage()]
    assert "so this was not sent: Holdfast run 'watched' finished" in warning
    assert "secret" not in warning
