"""A run of two ranks, told to the core alone."""

from __future__ import annotations

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import regrouping
from holdfast.core.run.state import RankStanding, RunSpec, RunState
from holdfast.core.run.step import step

KILLED = Evidence(signal=9)


class ToldRun:
    """A run of two ranks, with what the core has done about what it was told last."""

    def __init__(self, standby_workers: int = 1, num_workers: int = 2) -> None:
        self.state, self.done = RunState(), list[do.Command]()
        self._ranks = range(num_workers)
        limits = {"max_failures": -1, "regroup_timeout_s": 10.0, "backoff_s": 0.0}
        spec = RunSpec(num_workers=num_workers, standby_workers=standby_workers, **limits)
        self.tell(ev.DriverStarted(1, spec), *(ev.WorkerReady(1, rank) for rank in self._ranks))

    def tell(self, *events: ev.Event) -> list[do.Command]:
        self.done = []
        for event in events:
            self._step(event)
        return self.done

    def _step(self, event: ev.Event) -> None:
        if isinstance(event, ev.WorkerFailed):
            event = regrouping.judged(self.state, event)
        self.state, commands, _ = step(self.state, event, 0.0)
        for command in commands:
            self.done.append(command)
            if isinstance(command, do.Decide):
                self._step(command.event)

    def arm(self) -> list[do.Command]:
        return self.tell(*(ev.WorkerArmed(1, rank) for rank in self._ranks))

    def kill(self, rank: int, node: str = "a") -> do.ReplaceRank:
        self.tell(ev.WorkerFailed(1, rank, KILLED, node))
        return next(command for command in self.done if isinstance(command, do.ReplaceRank))

    def regroup(self, lost: int) -> None:
        """The process that the lost rank has now joins the other one."""
        joins, waits = RankStanding(-1, 0, joins=True), RankStanding(5, 0)
        own, other = self.process_of(lost), self.process_of(1 - lost)
        self.tell(
            ev.RegroupAsked(1, 1 - lost, waits, other),
            ev.RegroupAsked(1, lost, joins, own),
            ev.WorkerArmed(1, lost, own),
        )

    def process_of(self, rank: int) -> int:
        return self.state.ranks[rank].process
