"""When the experiment's driver fails, its trials are closed at the same time, and none of them holds it up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.tune.experiment import trial_run

WAIT_S = 60.0


def runs(number: int, close: Callable[[], object]) -> Any:
    return [SimpleNamespace(abandon=close) for _ in range(number)]


def test_trials_are_abandoned_at_the_same_time() -> None:
    together, closed = threading.Barrier(3), []

    def close() -> None:
        together.wait(WAIT_S)  # fails if they come one after the other
        closed.append(True)

    trial_run.abandon(runs(3, close))
    assert closed == [True] * 3


def test_a_trial_that_cannot_be_closed_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trial_run, "_ABANDONED_WITHIN_S", 0.05)
    is_back, has_ended = threading.Event(), threading.Event()

    def close() -> None:
        is_back.wait(WAIT_S)
        has_ended.set()

    with caplog.at_level(logging.WARNING):
        trial_run.abandon(runs(1, close))
    assert "whose last reports storage did not take within 0.05 s: 1" in caplog.text
    assert not has_ended.is_set()
    is_back.set()
    assert has_ended.wait(WAIT_S)


def test_a_trial_that_fails_to_close_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def close() -> None:
        raise OSError("the disk is gone")

    with caplog.at_level(logging.WARNING):
        trial_run.abandon(runs(1, close))
    assert "the disk is gone" in caplog.text
