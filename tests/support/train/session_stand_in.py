"""What loaders and states ask a session for, in a test without workers."""

from __future__ import annotations

from holdfast.wire.worker_messages import Place
from holdfast.worker.worker_place import Placed


class SessionStandIn(Placed):
    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(Place(rank, rank, world_size, 0), lambda: None)
        self.world_size = world_size
        self.devices: list[int] = []
