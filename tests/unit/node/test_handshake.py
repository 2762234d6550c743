"""Only the agent that knows the token gets in, and nobody else can keep it out."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast.node import handshake
from holdfast.node.handshake import AgentListener

PATIENCE_S = 120.0


@pytest.fixture
def door() -> Iterator[AgentListener]:
    door = AgentListener("127.0.0.1")
    yield door
    door.close()


class Admission:
    """The driver's side, in a thread."""

    def __init__(self, door: AgentListener) -> None:
        self._wanted = True
        self.let_in: socket.socket | None = None

        def admit() -> None:
            self.let_in = door.admit(lambda: self._wanted)

        self._thread = threading.Thread(target=admit)
        self._thread.start()

    def outcome(self) -> socket.socket | None:
        self._thread.join(PATIENCE_S)
        return self.let_in

    def give_up(self) -> socket.socket | None:
        self._wanted = False
        return self.outcome()


def test_both_know_the_token(door: AgentListener) -> None:
    admission = Admission(door)
    agent = handshake.call(door.host, door.port, door.token, PATIENCE_S)
    driver = admission.outcome()
    assert driver is not None
    with agent, driver:
        agent.sendall(b"from the agent")
        driver.sendall(b"from the driver")
        assert driver.recv(64) == b"from the agent"
        assert agent.recv(64) == b"from the driver"


def test_a_wrong_token_does_not_open_it(door: AgentListener) -> None:
    admission = Admission(door)
    with pytest.raises(OSError, match=r"closed the connection|reset"):
        handshake.call(door.host, door.port, os.urandom(32), PATIENCE_S)
    assert admission.give_up() is None


def test_strangers_who_say_nothing_or_nonsense_keep_nobody_out(door: AgentListener) -> None:
    admission = Admission(door)
    strangers = [socket.create_connection((door.host, door.port)) for _ in range(100)]
    try:
        for number, stranger in enumerate(strangers):
            try:
                stranger.sendall(os.urandom(number))
            except OSError:
                pass  # shown the door already
        with handshake.call(door.host, door.port, door.token, PATIENCE_S):
            driver = admission.outcome()
            assert driver is not None
            driver.close()
    finally:
        for stranger in strangers:
            stranger.close()


def test_an_agent_does_not_trust_a_driver_that_does_not_know_the_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            sock, _ = server.accept()
            with sock:
                sock.sendall(os.urandom(32))
                sock.recv(64)
                sock.sendall(os.urandom(32))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(OSError, match="not the driver"):
            handshake.call("127.0.0.1", server.getsockname()[1], os.urandom(32), PATIENCE_S)
        thread.join(PATIENCE_S)


def test_an_answer_is_of_no_use_a_second_time(door: AgentListener) -> None:
    """Who has listened in cannot repeat what the agent said: each caller is asked something else."""
    answers = []
    for _ in range(2):
        with socket.create_connection((door.host, door.port)) as caller:
            admission = Admission(door)
            answers.append(caller.recv(32))
            admission.give_up()
    assert answers[0] != answers[1]
