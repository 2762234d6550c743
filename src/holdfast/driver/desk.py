"""The desk of a driver: what its loop, its ears and its hands share. Only the loop steps the machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.run import events as ev
from holdfast.core.run.observer import Observer
from holdfast.core.run.retention import ranked
from holdfast.core.run.state import RunState
from holdfast.core.run.timers import Timer
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import CheckpointDamagedError
from holdfast.runs.past import Past

from .accounts import Accounts
from .display import Display
from .fleet import Fleet
from .handing_over import HandingOver
from .lag import Lag
from .plan import Plan
from .remote_storage import RemoteStorage
from .reports import ReportBook
from .requests import Requests
from .stacks import Stacks
from .storage import DiskStorage
from .verification import Verification


@dataclass
class Desk:
    plan: Plan
    inbox: Inbox
    storage: DiskStorage | RemoteStorage
    fleet: Fleet
    display: Display
    observer: Observer
    lag: Lag
    state: RunState = field(default_factory=RunState)
    queue: deque[ev.Event] = field(default_factory=deque)  # what the machine has to step next
    timers: dict[Timer | str, float] = field(default_factory=dict)  # when they are due, by the monotonic clock
    arguments: dict[tuple[int, int], Any] = field(default_factory=dict)  # of validations, by (generation, index)
    returned: dict[int, bytes] = field(default_factory=dict)
    stacks: Stacks = field(default_factory=Stacks)
    # Known when the run has been taken over from whoever had it before
    epoch: int = field(init=False)
    past: Past = field(init=False)

    def __post_init__(self) -> None:
        self.book = ReportBook(lambda: self.storage.home, self.plan.on_report)
        self.accounts = Accounts(self.storage.log_address)
        self.requests = Requests(self.fleet.tell, self.list_checkpoints, self.fleet.node_of, self.plan.shards)
        self.verification = Verification(self.fleet, self.storage)
        self.handing_over = HandingOver(self.fleet)

    def stored(self) -> set[str]:
        """The ids of the committed checkpoints, and of those that have just been found."""
        found = (event.record.id for event in self.queue if isinstance(event, ev.Committed))
        return {c.id for c in self.state.checkpoints}.union(found)

    def list_checkpoints(self) -> list[dict[str, Any]]:
        listed = []
        for checkpoint in ranked(self.state.checkpoints, self.state.spec):
            try:
                manifest = self.storage.read_manifest(checkpoint.id)
            except CheckpointDamagedError as error:
                self.inbox.put(ev.Damaged(checkpoint.id, str(error)))
                continue
            metrics = {**manifest.metrics, **(self.past.validated.get(checkpoint.id) or {})}
            listed.append({"id": checkpoint.id, "metrics": metrics, "status": checkpoint.validation.value})
        return listed

    def warn(self, text: str) -> None:
        self.display.warning(text)
        self.observer.warned(text)
