"""A rank waits for the server of another one, so that its client need not try again."""

from __future__ import annotations

import socket
import threading

from holdfast.train import rendezvous


def test_a_server_that_listens_later_is_awaited() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        waits = threading.Thread(target=rendezvous.await_server, args=(f"127.0.0.1:{server.getsockname()[1]}",))
        waits.start()
        waits.join(0.05)
        assert waits.is_alive(), "nobody listens yet"
        server.listen()
        waits.join(10)
        assert not waits.is_alive()


def test_a_host_that_cannot_be_reached_is_left_to_the_client() -> None:
    rendezvous.await_server("[::1%nowhere]:1")
