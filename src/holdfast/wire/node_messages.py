"""What is said of a node: that it joins, what it offers, what it has left of an earlier driver, and that it goes."""

from __future__ import annotations

from msgspec import field

from .message import Message


class Seat(Message, frozen=True, tag=True):
    """Room for one worker that a cluster has granted, with the GPUs that go with it, or its share of one."""

    gpus: list[str] = field(default_factory=list)


class LeftReports(Message, frozen=True, tag=True):
    """What a rank of an earlier driver's last attempt reported; the driver may not have heard of it."""

    attempt_number: int
    rank: int
    log: bytes  # as the rank wrote it
    lost: list[int]  # reports whose files are not here, or not as they were


class NodeReady(Message, frozen=True, tag=True):
    """What the node has to give, the engine adds. ``cpus`` may be infinite: as many workers as are asked for.
    ``seats``: the room for workers, whatever the machine has; None where no cluster shares it out."""

    node_id: str
    pid: int
    cpus: float
    unsaved: list[bytes] = field(default_factory=list)  # manifests that an earlier driver's node gathered, not uploaded
    left: list[LeftReports] = field(default_factory=list)
    gpus: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"  # where other nodes can reach it
    seats: list[Seat] | None = None
    machine: str = ""  # where workers may outlive their driver, as a network is between them; else empty
    clear: bool = True  # nothing of an earlier agent of the run is left there


class NodeDraining(Message, frozen=True, tag=True):
    """The node will go away; said by its agent when that gets a SIGTERM, or by the engine."""

    node_id: str
    deadline_s: float  # from now


class NodeJoining(Message, frozen=True, tag=True):
    """Said by the engine: an agent is being started."""

    node_id: str


class NodeSeats(Message, frozen=True, tag=True):
    """Said by the engine: the cluster has granted more room on a node, or has taken some back."""

    node_id: str
    seats: list[Seat]


class PlacesClear(Message, frozen=True, tag=True):
    """Said by the engine: nothing of an earlier driver is left on these nodes, be they the run's or not."""

    places: list[str]


class NodeLost(Message, frozen=True, tag=True):
    """Said by the engine, not by the agent: the agent is gone, and so are all processes below it."""

    node_id: str
