"""How the workers of an attempt find each other when a framework forms its own group: addresses, and ports that are
reserved meanwhile. The driver distributes the addresses, so an attempt cannot meet the workers of an earlier one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from holdfast.worker.session import Session

MEET_WITHIN_S = 300.0


def gather(session: Session, value: Any) -> list[Any]:
    """The values of all ranks, in their order, on every rank."""
    if session.world_size == 1:
        return [value]
    bodies: list[bytes] = session.request("gather", value, MEET_WITHIN_S)
    return [cloudpickle.loads(body) for body in bodies]


def from_rank_zero(session: Session, value: Any) -> Any:
    """Rank 0's value, on every rank."""
    return value if session.world_size == 1 else session.request("broadcast", value, MEET_WITHIN_S)


@contextmanager
def held_port(session: Session) -> Iterator[int]:
    """Reserve a port of this worker. The socket that holds it never listens, so a server of this process that sets
    SO_REUSEPORT, as gRPC does, or SO_REUSEADDR, as torch's store does, can bind it too."""
    family = socket.AF_INET6 if ":" in session.address else socket.AF_INET
    with socket.socket(family) as held:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            held.setsockopt(socket.SOL_SOCKET, option, 1)
        held.bind((session.address, 0))
        yield held.getsockname()[1]


def free_port(session: Session) -> int:
    """A port that is free now, for a server that does not share its port: it could not bind one that is held."""
    with held_port(session) as port:
        return port


def address(session: Session, port: int) -> str:
    host = session.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def await_server(address: str) -> None:
    """Wait until a server listens there. A client of gRPC that came too early would try again only after a second."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + MEET_WITHIN_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        except ConnectionRefusedError:
            time.sleep(0.002)
        except OSError:
            return  # the client knows better what to do
        else:
            return


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables while the train function runs, which may be in the user's own process."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
