"""A session's stand-in, so that what a train function calls is tested without a run around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.location import Location
from holdfast.train import checks
from holdfast.wire.worker_messages import Offer, Place
from holdfast.worker import session as sessions
from holdfast.worker.session import Files
from holdfast.worker.worker_place import WorkerPlace


class StandIn:
    """Has what the API uses of a ``Session``; keeps what it was told, answers what ``answers`` holds."""

    is_launched = False
    joins = 0
    memory = None
    group_timeout_s = 0.0

    def __init__(self, run_dir: Path, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.place = WorkerPlace(Place(rank, rank, world_size, 0), lambda: None)
        self.local_rank, self.local_world_size = rank, world_size
        self.node_rank, self.node_id = 0, "node-0"
        self.devices: list[int] = []
        self.address = "127.0.0.1"
        self.validates = True
        self.attempt_number = 1
        self.run_name, self.run_dir = run_dir.name, str(run_dir)
        self.metadata: dict[str, Any] = {"owner": "tests"}
        self.location = Location.parse("run_dir", run_dir)
        self.resumed_from: Offer | None = None
        self.initial: Any = None
        self.datasets: dict[str, Any] = {}
        self.reports: list[dict[str, Any]] = []
        self.requests: list[tuple[str, Any, float | None]] = []
        self.answers: dict[str, Any] = {}

    @property
    def early_rank(self) -> int:
        return self.rank

    def report(self, metrics: dict[str, Any], files: Any = None, **options: Any) -> None:
        files = files(len(self.reports)) if callable(files) else files or Files()
        defaults = {"name": None, "wait": False, "validation": None}
        self.reports.append({"metrics": metrics, **asdict(files), **defaults, **options})

    def request(self, kind: str, body: Any, timeout_s: float | None) -> Any:
        self.requests.append((kind, body, timeout_s))
        answer = self.answers[kind]
        return answer(body) if callable(answer) else answer

    def at_end(self, call: Callable[[], None]) -> None:
        call()

    def notice(self) -> None:
        """Nobody is about to end this group."""

    def current_checkpoint(self) -> Offer | None:
        return self.resumed_from


@pytest.fixture
def session(tmp_path: Path) -> Iterator[StandIn]:
    run_dir = tmp_path / "storage" / "a-run"
    run_dir.mkdir(parents=True)
    stand_in = StandIn(run_dir)
    sessions.install(stand_in)  # type: ignore[arg-type]
    yield stand_in
    sessions.install(None)


@pytest.fixture(autouse=True)
def _warn_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_warned", set())
