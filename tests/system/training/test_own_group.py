"""A framework of one's own: its configuration forms a group of the workers around the train function."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train import rendezvous
from holdfast.train.api import session_for
from holdfast.train.config import BackendConfig


class Meeting(BackendConfig):
    """Every worker listens on a port that it held before, and all know the addresses of all."""

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _Met(train_fn)


class _Met:
    def __init__(self, train_fn: Callable[..., Any]) -> None:
        self.train_fn = train_fn

    def __call__(self, *args: Any) -> Any:
        session = session_for("Meeting")
        with rendezvous.held_port(session) as port:
            addresses = rendezvous.gather(session, rendezvous.address(session, port))
            leader = rendezvous.from_rank_zero(session, port)
            with socket.socket() as server:  # as gRPC does
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                server.bind((session.address, port))
                server.listen()
                with rendezvous.environment({"ADDRESSES": ",".join(addresses), "LEADER": str(leader)}):
                    return self.train_fn(*args)


def _train() -> None:
    context = train.get_context()
    addresses = os.environ["ADDRESSES"].split(",")
    train.collective.barrier()
    for address in addresses:
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=30).close()
    own = int(addresses[context.get_world_rank()].rpartition(":")[2])
    assert (own == int(os.environ["LEADER"])) == (context.get_world_rank() == 0)
    train.report({"met": len(set(addresses))})
    train.collective.barrier()  # nobody leaves before the others have connected


def test_workers_meet_where_the_configuration_says(tmp_path: Path) -> None:
    trainer = train.DataParallelTrainer(
        _train,
        backend_config=Meeting(),
        scaling_config=train.ScalingConfig(num_workers=3),
        run_config=train.RunConfig(name="met", storage_path=str(tmp_path), verbose=0),
    )
    assert trainer.fit().metrics == {"met": 3}
    assert "ADDRESSES" not in os.environ
