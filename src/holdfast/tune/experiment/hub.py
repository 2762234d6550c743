"""The nodes of an experiment, and what of them each trial has. All trials share one agent on each node.

To the driver of a trial this is an engine: it sees only the nodes on which the trial was given room, with just that
room, and loses them or gets others as the experiment's nodes come and go.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import structs

from holdfast.engine.base import Engine, Inbox, Session
from holdfast.tune.resources import total
from holdfast.wire import messages as wire

T = TypeVar("T")
Bundles = Sequence[Mapping[str, float]]


@dataclass
class Node:
    id: str
    free: dict[str, float]
    total: dict[str, float]
    address: str
    gpus: list[float]  # what is free of each
    draining: bool = False


@dataclass
class Share:
    """What a trial has of one node."""

    taken: dict[str, float] = field(default_factory=dict)
    gpus: list[tuple[int, float]] = field(default_factory=list)  # which, and how much of each


class Hub:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: Session | None = None
        self._nodes: dict[str, Node] = {}
        self._joining: set[str] = set()
        self._parts: dict[int, TrialSession] = {}  # by the run's number
        self._shares: dict[int, dict[str, Share]] = {}
        self._runs = 0

    @property
    def grows(self) -> bool:
        return self._engine.grows

    @property
    def is_settled(self) -> bool:
        """Whether no node is on its way for the first time."""
        return bool(self._nodes) and not self._joining

    def open(self, configure: wire.Configure, inbox: Inbox) -> None:
        self._session = self._engine.open(configure, inbox)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def total(self) -> dict[str, float]:
        return total(node.total for node in self._nodes.values())

    # Room

    def place(self, bundles: Bundles, avoid: Iterable[str] = ()) -> dict[str, Share] | None:
        """Where the bundles fit now, taken out of what is free; None if they do not."""
        shares: dict[str, Share] = {}
        avoided = set(avoid)
        for bundle in bundles:
            node = next((n for n in self._in_order(shares) if n.id not in avoided and _fits(bundle, n)), None)
            if node is None:
                self.give_back(shares)
                return None
            _take(bundle, node, shares.setdefault(node.id, Share()))
        return shares

    def can_ever(self, bundles: Bundles) -> bool:
        """Whether the nodes that are there could hold them if nothing else ran."""
        fresh = {n.id: Node(n.id, dict(n.total), n.total, n.address, [1.0] * len(n.gpus)) for n in self._nodes.values()}
        nodes, self._nodes = self._nodes, fresh
        try:
            return self.place(bundles) is not None
        finally:
            self._nodes = nodes

    def _in_order(self, shares: Mapping[str, Share]) -> list[Node]:
        """Those that the trial has a part of already first, then the fullest."""
        usable = [node for node in self._nodes.values() if not node.draining]
        return sorted(usable, key=lambda node: (node.id not in shares, node.free.get("CPU", 0.0)))

    def give_back(self, shares: Mapping[str, Share]) -> None:
        for id, share in shares.items():
            node = self._nodes.get(id)
            if node is None:
                continue
            for name, amount in share.taken.items():
                node.free[name] = node.free.get(name, 0.0) + amount
            for device, amount in share.gpus:
                node.gpus[device] = min(1.0, node.gpus[device] + amount)

    def lacking(self, run: int, bundles: Bundles) -> list[Mapping[str, float]]:
        """Those of a trial's bundles that its nodes, without those that will go away, do not hold."""
        staying = {
            id: dict(share.taken)
            for id, share in self._shares.get(run, {}).items()
            if id in self._nodes and not self._nodes[id].draining
        }
        lacking = []
        for bundle in bundles:
            for taken in staying.values():
                if all(taken.get(name, 0.0) >= amount - 1e-9 for name, amount in bundle.items() if name != "GPU"):
                    for name, amount in bundle.items():
                        taken[name] = taken.get(name, 0.0) - amount
                    break
            else:
                lacking.append(bundle)
        return lacking

    # Trials

    def engine_for(self, shares: dict[str, Share], on_closed: Callable[[], None]) -> TrialEngine:
        self._runs += 1
        self._shares[self._runs] = shares
        return TrialEngine(self, self._runs, on_closed)

    def give_more(self, run: int, shares: dict[str, Share]) -> None:
        """Room for a trial that has lost some."""
        self._shares.setdefault(run, {}).update(shares)
        part = self._parts.get(run)
        if part is not None:
            part.join(shares)

    def share(self, run: int, node: str) -> Share | None:
        return self._shares.get(run, {}).get(node)

    def is_part(self, part: TrialSession) -> None:
        self._parts[part.run] = part
        part.join(self._shares.get(part.run, {}))

    def send(self, node: str, message: wire.Message) -> None:
        assert self._session is not None
        self._session.send(node, message)

    def is_closed(self, run: int, node: str | None = None) -> None:
        """Nothing of the trial is left on that node, or on any."""
        shares = self._shares.get(run, {})
        gone = {id: share for id, share in shares.items() if node in (None, id)}
        self._shares[run] = {id: share for id, share in shares.items() if id not in gone}
        self.give_back(gone)
        if not self._shares[run]:
            del self._shares[run]
            self._parts.pop(run, None)

    # What the agents and the engine say

    def hear(self, node: str, message: wire.Message) -> None:
        match message:
            case wire.OfRun(run, said):
                part = self._parts.get(run)
                if part is not None:
                    part.hear(node, said)
            case wire.RunClosed(run):
                part = self._parts.get(run)
                if part is not None:
                    part.has_left(node)
            case wire.NodeJoining():
                self._joining.add(node)
            case wire.NodeReady():
                self._ready(message)
            case wire.NodeDraining(_, deadline_s):
                if node in self._nodes:
                    self._nodes[node].draining = True
                for part in self._on(node):
                    part.put(node, wire.NodeDraining(node, deadline_s))
                    part.needs_room()
            case wire.NodeLost():
                self._lost(node)

    def _ready(self, message: wire.NodeReady) -> None:
        assert self._session is not None
        self._session.accept(message.node_id, message.pid)
        self._joining.discard(message.node_id)
        cpus = float(os.cpu_count() or 1) if math.isinf(message.cpus) else message.cpus
        has = {"CPU": cpus, "GPU": message.gpus}
        where = (message.node_id, dict(has), has, message.address)
        self._nodes[message.node_id] = Node(*where, [1.0] * math.ceil(message.gpus))

    def _lost(self, id: str) -> None:
        self._joining.discard(id)
        parts = self._on(id)
        self._nodes.pop(id, None)
        for part in parts:
            shares = self._shares.get(part.run, {})
            shares.pop(id, None)
            part.lost(id)

    def _on(self, node: str) -> list[TrialSession]:
        return [part for run, part in self._parts.items() if node in self._shares.get(run, {})]


class TrialEngine:
    """The room that one trial has, as an engine for its driver."""

    grows = True

    def __init__(self, hub: Hub, run: int, on_closed: Callable[[], None]) -> None:
        self._hub, self.run = hub, run
        self._on_closed = on_closed
        self.wants_room = False  # it lost some, and waits for more

    def check(self, gpus: float) -> None:
        """The experiment has looked already."""

    def open(self, configure: wire.Configure, inbox: Inbox) -> TrialSession:
        session = TrialSession(self._hub, self.run, configure, inbox, self)
        self._hub.is_part(session)
        return session

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()

    def closed(self) -> None:
        self._on_closed()


class TrialSession:
    def __init__(self, hub: Hub, run: int, configure: wire.Configure, inbox: Inbox, engine: TrialEngine) -> None:
        self._hub, self.run, self._configure, self._inbox, self._engine = hub, run, configure, inbox, engine
        self._there: set[str] = set()  # the nodes whose agents know of the run
        self._closing = False

    def join(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if node not in self._there:
                self._there.add(node)
                self.put(node, wire.NodeJoining(node))
                self._hub.send(node, wire.OpenRun(self.run, structs.replace(self._configure, node_id=node)))

    def accept(self, node_id: str, pid: int) -> None:
        """The experiment has accepted the agent."""

    def send(self, node_id: str, message: wire.Message) -> None:
        if isinstance(message, wire.Probe) or node_id not in self._there:
            return
        if isinstance(message, wire.StartWorkers):
            message = self._with_devices(node_id, message)
        self._hub.send(node_id, wire.InRun(self.run, message))  # type: ignore[arg-type]

    def _with_devices(self, node: str, order: wire.StartWorkers) -> wire.StartWorkers:
        """The GPUs that the trial was given, in place of the first ones of the machine."""
        share = self._hub.share(self.run, node)
        if share is None or not share.gpus:
            return order
        own = [device for device, _ in share.gpus]
        places = [structs.replace(p, devices=[own[d % len(own)] for d in p.devices]) for p in order.places]
        return structs.replace(order, places=places)

    def close(self) -> None:
        """Its processes are told to end; when they have, the experiment hears of it."""
        self._closing = True
        for node in self._there:
            self._hub.send(node, wire.CloseRun(self.run, over=True))
        if not self._there:
            self._closed()

    def has_left(self, node: str) -> None:
        self._there.discard(node)
        self._hub.is_closed(self.run, node)
        if self._closing and not self._there:
            self._closed()

    def _closed(self) -> None:
        self._hub.is_closed(self.run)
        self._engine.closed()

    def lost(self, node: str) -> None:
        self._there.discard(node)
        self.put(node, wire.NodeLost(node))
        if self._closing and not self._there:
            self._closed()
        self.needs_room()

    def needs_room(self) -> None:
        if not self._closing:
            self._engine.wants_room = True

    def hear(self, node: str, message: wire.Message) -> None:
        if isinstance(message, wire.NodeReady):
            share = self._hub.share(self.run, node)
            if share is None:
                return
            gives = {"cpus": share.taken.get("CPU", 0.0), "gpus": float(len(share.gpus))}
            message = structs.replace(message, **gives)
        self.put(node, message)

    def put(self, node: str, message: wire.Message) -> None:
        self._inbox.put((node, message))


def _fits(bundle: Mapping[str, float], node: Node) -> bool:
    for name, amount in bundle.items():
        if name != "GPU" and amount > node.free.get(name, 0.0) + 1e-9:
            return False
    gpus = bundle.get("GPU", 0.0)
    return not gpus or _devices(gpus, node) is not None


def _devices(amount: float, node: Node) -> list[tuple[int, float]] | None:
    """Whole GPUs for whole numbers, else a part of one."""
    if amount < 1.0:
        sharing = [d for d, free in enumerate(node.gpus) if free >= amount - 1e-9]
        return [(min(sharing, key=lambda d: node.gpus[d]), amount)] if sharing else None
    whole = [d for d, free in enumerate(node.gpus) if free >= 1.0 - 1e-9][: math.ceil(amount)]
    return [(d, 1.0) for d in whole] if len(whole) == math.ceil(amount) else None


def _take(bundle: Mapping[str, float], node: Node, share: Share) -> None:
    for name, amount in bundle.items():
        if name != "GPU":
            node.free[name] = node.free.get(name, 0.0) - amount
            share.taken[name] = share.taken.get(name, 0.0) + amount
    for device, amount in _devices(bundle.get("GPU", 0.0), node) or [] if bundle.get("GPU") else []:
        node.gpus[device] -= amount
        share.gpus.append((device, amount))
