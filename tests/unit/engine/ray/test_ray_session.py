"""What the thread that looks at a Ray cluster makes of what Ray answers."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.demand import Demand
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.ray import ray_session, trial_grants
from holdfast.engine.ray.connection import LeftClusterError
from holdfast.engine.ray.ray_session import RaySession
from holdfast.testing.engine_runs import configure
from support.engine import dummies


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (ValueError("Invalid label selector"), ValueError, "Ray rejected the run's request: Invalid label selector"),
        (LeftClusterError(), LeftClusterError, "call ray.shutdown"),
    ],
)
def test_what_will_not_get_better_is_said_at_once(
    answer: Exception, kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise answer

    monkeypatch.setattr(ray_session, "look", dict)
    monkeypatch.setattr(ray_session, "remove_left_behind", lambda _: None)
    monkeypatch.setattr(ray_session, "_FIRST_LOOKS_S", 0.0)
    monkeypatch.setattr(trial_grants, "Reservation", refuse)
    inbox: Inbox = queue.SimpleQueue()
    asked = RaySession(Demand(0, 0, by_request=True), configure(tmp_path, dummies.wait_with_children), inbox)
    try:
        asked.reserve("1", [{"CPU": 1.0}], "PACK", [])
        error = inbox.get(timeout=30)
    finally:
        asked.close()
    assert type(error) is kind
    assert words in str(error)
