"""A worker exits only after it has said why it failed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.wire.worker_messages import Raised
from holdfast.worker import training_process

WAIT_S = 60.0


def test_a_worker_exits_after_it_has_told_why_an_upload_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The train function ends while another thread is telling it, because of the same failure."""
    is_telling, has_left = threading.Event(), threading.Event()
    told: list[tuple[str, bool]] = []
    uploads: list[threading.Thread] = []

    def send(message: Raised) -> None:
        is_telling.set()
        told.append((message.message, has_left.wait(0.2)))

    def session(_assignment: Any, _channel: Any, _on_lost: Any, upload_failed: Any) -> Any:
        uploads.append(threading.Thread(target=upload_failed, args=(OSError("the bucket is gone"),)))
        return SimpleNamespace(end=lambda **_: None, started=True, is_out_of_memory=lambda _error: False)

    def install(installed: Any) -> None:
        if installed is None:
            has_left.set()  # the last thing before the process exits

    def train() -> None:
        uploads[0].start()
        assert is_telling.wait(WAIT_S)
        raise RuntimeError("report() after a failed upload")

    monkeypatch.setattr(training_process.sessions, "Session", session)
    monkeypatch.setattr(training_process.sessions, "install", install)
    channel: Any = SimpleNamespace(send=send)
    code = training_process.perform(Any, channel, lambda: train, lambda: None, is_own_process=True)  # type: ignore[arg-type]
    uploads[0].join(WAIT_S)
    assert code == 1
    assert told == [("the bucket is gone", False)], "once, and before the worker left"
    assert "the bucket is gone" in capfd.readouterr().err
