"""Messages about a node: that it joins, what resources it has, what an earlier driver left, that it will be removed."""

from __future__ import annotations

from msgspec import field

from .message import Message


class Seat(Message, frozen=True, tag=True):
    """Resources for one worker that a cluster has granted, with its GPUs or its share of one."""

    gpus: list[str] = field(default_factory=list)


class LeftReports(Message, frozen=True, tag=True):
    """The reports of a rank in the last attempt of an earlier driver, which may not have received them."""

    attempt_number: int
    rank: int
    log: bytes  # as the rank wrote it
    lost: list[int]  # reports whose files are missing or were changed


class NodeReady(Message, frozen=True, tag=True):
    """The engine adds the resources of the node. ``cpus`` may be infinite: as many workers as requested. ``seats`` are
    the resources that a cluster granted for workers, whatever the machine has; None without a cluster."""

    node_id: str
    pid: int
    cpus: float
    unsaved: list[bytes] = field(default_factory=list)  # manifests gathered under an earlier driver, not uploaded
    left: list[LeftReports] = field(default_factory=list)
    gpus: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"  # where other nodes can reach it
    seats: list[Seat] | None = None
    machine: str = ""  # which machine, where a network failure lets workers outlive their driver; else empty
    clear: bool = True  # no process of an earlier agent of the run is left on the machine


class NodeDraining(Message, frozen=True, tag=True):
    """The node will be removed. Sent by its agent after a SIGTERM, or by the engine."""

    node_id: str
    deadline_s: float  # seconds from now


class NodeJoining(Message, frozen=True, tag=True):
    """Sent by the engine: an agent is being started."""

    node_id: str


class NodeSeats(Message, frozen=True, tag=True):
    """Sent by the engine: the cluster has granted more resources on a node, or has taken some back."""

    node_id: str
    seats: list[Seat]


class PlacesClear(Message, frozen=True, tag=True):
    """Sent by the engine: no process of an earlier driver is left on these nodes, whether the run uses them or not."""

    places: list[str]


class NodeLost(Message, frozen=True, tag=True):
    """Sent by the engine, not by the agent: the agent and all processes below it have exited."""

    node_id: str
