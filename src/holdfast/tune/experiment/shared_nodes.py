"""The nodes of an experiment, and each trial's share of them. All trials share one agent on each node.

For the driver of a trial this is an engine: it sees only the nodes on which the trial has resources, with only those
resources, and loses or gains nodes as the experiment does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import structs

from holdfast.driver.node_registry import place_of
from holdfast.engine.engine_interface import Engine, EngineSession, Granting, Inbox
from holdfast.engine.initial import local_resources
from holdfast.tune.experiment.capacity import Bundles, NodeCapacity, Share, Shares, TrialCapacity
from holdfast.tune.experiment.granted_capacity import GrantedCapacity
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Place

T = TypeVar("T")


class SharedNodes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: EngineSession | None = None
        self.capacity: TrialCapacity = NodeCapacity(local_resources())
        self._nodes: dict[str, str] = {}  # ready nodes; their places, if no process of an earlier driver is left there
        self._parts: dict[int, TrialSession] = {}  # by the run's number
        self._shares: dict[int, Shares] = {}
        self._runs = 0

    @property
    def grows(self) -> bool:
        return self._engine.grows

    @property
    def is_this_machine(self) -> bool:
        return self._engine.is_this_machine

    def open(self, configure: wire.Configure, inbox: Inbox) -> None:
        self._session = self._engine.open(configure, inbox)
        if isinstance(self._session, Granting):
            self.capacity = GrantedCapacity(self._session)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def lacking(self, run: int, bundles: Bundles) -> list[Mapping[str, float]]:
        """The bundles of a trial that have no resources, or will soon lose them."""
        return self.capacity.lacking(self._shares.get(run, {}), bundles)

    # Trials

    def engine_for(self, shares: Shares, on_closed: Callable[[], None]) -> TrialEngine:
        self._runs += 1
        self._shares[self._runs] = shares
        return TrialEngine(self, self._runs, on_closed)

    def give_more(self, run: int, shares: Shares) -> None:
        """Find capacity for a trial that has lost some. A trial that is closing needs none."""
        part = self._parts.get(run)
        if part is None or part.is_closing:
            self.capacity.give_back(shares)
            return
        mine = self._shares.setdefault(run, {})
        for node, share in shares.items():
            mine.setdefault(node, Share()).add(share)
        part.join(shares)

    def share(self, run: int, node: str) -> Share | None:
        return self._shares.get(run, {}).get(node)

    def register(self, part: TrialSession) -> None:
        self._parts[part.run] = part
        shares = self._shares.get(part.run, {})
        for gone in [node for node in shares if node not in self._nodes]:  # since the trial was placed
            self.capacity.give_back({gone: shares.pop(gone)})
            part.ask_for_capacity()
        part.note_clear([place for place in self._nodes.values() if place])
        part.join(shares)

    def send(self, node: str, message: wire.Message) -> None:
        assert self._session is not None
        self._session.send(node, message)

    def run_left(self, run: int, node: str | None = None) -> None:
        """No process of the trial is left on that node, or on any node."""
        shares = self._shares.get(run, {})
        gone = {id: share for id, share in shares.items() if node in (None, id)}
        self._shares[run] = {id: share for id, share in shares.items() if id not in gone}
        self.capacity.give_back(gone)
        if not self._shares[run]:
            del self._shares[run]
            self._parts.pop(run, None)

    # Messages from the agents and the engine

    def hear(self, node: str, message: wire.Message) -> None:
        match message:
            case wire.OfRun(run, said):
                part = self._parts.get(run)
                if part is not None:
                    part.hear(node, said)
            case wire.RunClosed(run):
                part = self._parts.get(run)
                if part is not None:
                    part.node_left(node)
            case wire.NodeJoining():
                self.capacity.joining(node)
            case wire.NodeReady():
                assert self._session is not None
                self._session.accept(node, message.pid)
                clear = self._nodes[node] = place_of(message) if message.clear else ""
                for part in self._parts.values() if clear else ():
                    part.note_clear([clear])
                self.capacity.ready(message)
            case wire.NodeSeats(_, seats):
                self.capacity.seat(node, seats)
            case wire.NodeDraining(_, deadline_s):
                self.capacity.drain(node)
                for part in self._on(node):
                    part.put(node, wire.NodeDraining(node, deadline_s))
                    part.ask_for_capacity()
            case wire.NodeLost():
                self._lost(node)

    def _lost(self, id: str) -> None:
        self._nodes.pop(id, None)
        self.capacity.lost(id)
        for part in self._on(id):
            self.capacity.give_back({id: self._shares[part.run].pop(id)})
            part.lost(id)

    def _on(self, node: str) -> list[TrialSession]:
        return [part for run, part in self._parts.items() if node in self._shares.get(run, {})]


class TrialEngine:
    """The resources of one trial, as an engine for its driver."""

    grows = True

    def __init__(self, nodes: SharedNodes, run: int, on_closed: Callable[[], None]) -> None:
        self._nodes, self.run = nodes, run
        self.is_this_machine = nodes.is_this_machine
        self._on_closed = on_closed
        self.wants_capacity = False  # it lost some, and waits for more
        self.is_open = False

    def check(self, gpus: float) -> None:
        """Does nothing: the experiment has already checked this."""

    def open(self, configure: wire.Configure, inbox: Inbox) -> TrialSession:
        self.is_open = True
        session = TrialSession(self._nodes, self.run, configure, inbox, self)
        self._nodes.register(session)
        return session

    def give_up(self) -> None:
        """The trial has failed before it requested its nodes."""
        self._nodes.run_left(self.run)
        self.closed()

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()

    def closed(self) -> None:
        self._on_closed()


class TrialSession:
    def __init__(
        self, nodes: SharedNodes, run: int, configure: wire.Configure, inbox: Inbox, engine: TrialEngine
    ) -> None:
        self._nodes, self.run, self._configure, self._inbox, self._engine = nodes, run, configure, inbox, engine
        self._there: set[str] = set()  # the nodes whose agents know of the run
        self.is_closing = False

    def join(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if node in self._there:  # if it is not ready yet, it will say so with all that the trial has there
                self.put(node, wire.NodeSeats(node, self._seats(node)))
                continue
            self._there.add(node)
            self.put(node, wire.NodeJoining(node))
            self._nodes.send(node, wire.OpenRun(self.run, structs.replace(self._configure, node_id=node)))

    def note_clear(self, places: list[str]) -> None:
        """No process is left at these places. The trial may have had a part of them before it was placed where it is
        now."""
        if places:
            self.put("", wire.PlacesClear(places))

    def accept(self, node_id: str, pid: int) -> None:
        """Does nothing: the experiment has accepted the agent."""

    def send(self, node_id: str, message: wire.Message) -> None:
        if isinstance(message, wire.Probe) or node_id not in self._there:
            return
        if isinstance(message, wire.StartWorkers) and not self._nodes.capacity.is_granted:
            message = structs.replace(message, places=[named(place) for place in message.places])
        self._nodes.send(node_id, wire.InRun(self.run, message))  # type: ignore[arg-type]

    def _seats(self, node: str) -> list[wire.Seat]:
        share = self._nodes.share(self.run, node)
        return [] if share is None else list(share.seats)

    def close(self) -> None:
        """Its processes are asked to exit. When they have exited, the experiment gets a message."""
        self.is_closing = True
        for node in self._there:
            self._nodes.send(node, wire.CloseRun(self.run, over=True))
        if not self._there:
            self._closed()

    def node_left(self, node: str) -> None:
        self._there.discard(node)
        self._nodes.run_left(self.run, node)
        if self.is_closing and not self._there:
            self._closed()

    def _closed(self) -> None:
        self._nodes.run_left(self.run)
        self._engine.closed()

    def lost(self, node: str) -> None:
        self._there.discard(node)
        self.put(node, wire.NodeLost(node))
        if self.is_closing and not self._there:
            self._closed()
        self.ask_for_capacity()

    def ask_for_capacity(self) -> None:
        if not self.is_closing:
            self._engine.wants_capacity = True

    def hear(self, node: str, message: wire.Message) -> None:
        if isinstance(message, wire.NodeReady):
            if self._nodes.share(self.run, node) is None:
                return
            message = structs.replace(message, seats=self._seats(node))
        self.put(node, message)

    def put(self, node: str, message: wire.Message) -> None:
        self._inbox.put((node, message))


def named(place: Place) -> Place:
    """A trial sees only its own GPUs. The script's own environment may have other names for them."""
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    seen = [int(gpu) for gpu in place.sees.split(",") if gpu]
    return structs.replace(place, sees=",".join(names[gpu] if gpu < len(names) else str(gpu) for gpu in seen))
