"""Messages between driver and agents about snapshots in the memory of nodes. A snapshot belongs to one step of one
attempt. Its pieces are ``shared``, which is the same on all ranks, and one for each rank, such as ``rank-3``.
"""

from __future__ import annotations

from .message import Message

# To the agent


class PeerStore(Message, frozen=True, tag=True):
    """The address where a node receives and sends snapshots of the run."""

    node: str
    address: str
    port: int
    token: bytes


class OpenStore(Message, frozen=True, tag=True):
    """Let other nodes of the run send and fetch snapshots; answered with ``StoreOpen``."""

    address: str


class Replicate(Message, frozen=True, tag=True):
    """From now on, send a copy of each snapshot to these nodes."""

    to: list[PeerStore]
    shared: bool  # also copy the pieces that are the same on all ranks, because too few nodes have them
    number: int = 0  # counts the driver's orders to copy; 0: there was none yet


class Recall(Message, frozen=True, tag=True):
    """Verify these pieces of a snapshot, and fetch those that are not here or are damaged; answered with
    ``Recalled``."""

    attempt_number: int
    step: int
    pieces: list[str]
    sources: dict[str, list[PeerStore]]  # the addresses of nodes that have the other pieces
    number: int = 0  # of this recall; the answer repeats it


# To the driver


class StoreOpen(Message, frozen=True, tag=True):
    port: int  # 0: it cannot be opened
    token: bytes


class SnapshotHeld(Message, frozen=True, tag=True):
    """A rank's snapshot is in the node's memory, with a digest, and copies of it are on other nodes."""

    attempt_number: int
    rank: int
    step: int
    reports: int
    moves: bool
    pieces: list[str]
    copies: list[str]  # the nodes that have copies
    final: bool  # no further copies will be made
    alike: bytes = b""  # as in the worker's ``Snapshot``
    order: int = 0  # the number of the ``Replicate`` that asked for the copies; 0: before the first


class Recalled(Message, frozen=True, tag=True):
    attempt_number: int
    step: int
    moved: bool = False  # something came from another node
    error: str = ""
    number: int = 0  # the number of the recall
