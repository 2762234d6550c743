"""Two nodes that cannot talk, or not as they should, are told from those that can; and who is to blame is decided."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.core.run.placement import WorkerNeeds
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.peers import Peers
from holdfast.node import peer_check
from holdfast.wire import messages as wire

PATIENCE_S = 120.0
HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def no_door_stays_open() -> Iterator[None]:
    yield
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.name == "holdfast-door" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a door is open"
        time.sleep(0.01)


class Wire:
    """Between a caller and a door, with something wrong in it."""

    def __init__(self, port: int, there: Callable[[bytes], bytes], back: Callable[[bytes], bytes]) -> None:
        self._listener = socket.create_server((HERE, 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._connect, args=(port, there, back))]
        self._threads[0].start()

    def _connect(self, port: int, there: Callable[[bytes], bytes], back: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            caller, _ = self._listener.accept()
            door = socket.create_connection((HERE, port), timeout=PATIENCE_S)
            self._ends = [caller, door]
            for args in ((caller, door, there), (door, caller, back)):
                self._threads.append(threading.Thread(target=self._carry, args=args))
                self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(change(data))
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in self._ends:
            end.close()


def as_it_is(data: bytes) -> bytes:
    return data


def corrupted() -> Callable[[bytes], bytes]:
    """One bit, far behind the greeting."""
    passed = 0

    def change(data: bytes) -> bytes:
        nonlocal passed
        passed += len(data)
        if passed - len(data) <= 1 << 20 < passed:
            place = (1 << 20) - (passed - len(data))
            return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        return data

    return change


def met_through(there: Callable[[bytes], bytes], back: Callable[[bytes], bytes]) -> str:
    door = peer_check.open_door(HERE)
    between = Wire(door.port, there, back)
    try:
        return peer_check.meet(HERE, between.port, door.token)
    finally:
        between.close()


def test_nodes_that_can_talk() -> None:
    door = peer_check.open_door(HERE)
    assert peer_check.meet(HERE, door.port, door.token) == ""


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_bit_that_is_turned_over_on_the_way(way: str) -> None:
    wrong = corrupted()
    found = met_through(wrong, as_it_is) if way == "there" else met_through(as_it_is, wrong)
    assert "than was sent" in found
    assert met_through(as_it_is, as_it_is) == ""


def test_a_network_that_is_far_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_check, "WITHIN_S", 1.0)
    stop = threading.Event()

    def slow(data: bytes) -> bytes:
        stop.wait(0.2)
        return data

    try:
        assert met_through(slow, as_it_is) == "no exchange of 2 MiB within 1 s"
    finally:
        stop.set()


def test_a_peer_that_is_not_there() -> None:
    door = peer_check.open_door(HERE)
    assert peer_check.meet(HERE, door.port, door.token) == ""
    assert "refused" in peer_check.meet(HERE, door.port, door.token)


def test_a_peer_that_is_another() -> None:
    door = peer_check.open_door(HERE)
    assert peer_check.meet(HERE, door.port, b"guess" * 8)
    assert peer_check.meet(HERE, door.port, door.token) == "", "strangers do not keep it from who is expected"


class Nodes:
    """Agents in miniature: those of ``walls`` (from, to) do not get through."""

    def __init__(self, *ids: str, walls: set[tuple[str, str]] = frozenset(), least: int = 1) -> None:  # type: ignore[assignment]
        self.roster = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", least))
        self.walls = walls
        self.said: list[tuple[str, Any]] = []
        self.sent: list[tuple[str, wire.Message]] = []
        self.peers = Peers(self.roster, lambda node, message: self.sent.append((node, message)))
        self.warnings: list[str] = []
        for id in ids:
            self.join(id)

    def join(self, id: str, answers: bool = True) -> None:
        self.roster.ready(wire.NodeReady(id, 1, 1.0, address=f"at-{id}"))
        self.peers.joined(id)
        while answers and self.sent:
            self.answer(*self.sent.pop(0))

    def answer(self, node: str, order: Any) -> None:
        if isinstance(order, wire.OpenDoor):
            told: Any = wire.DoorOpen(order.meeting, 1, node.encode())
        else:
            wall = (node, order.token.decode()) in self.walls
            told = wire.Met(order.meeting, "timed out" if wall else "")
        warning = self.peers.hear(node, told)
        if warning is not None:
            self.warnings.append(warning)

    def usable(self) -> list[str]:
        return self.roster.usable()


def test_nothing_is_done_where_there_is_one_node() -> None:
    nodes = Nodes()
    nodes.join("a", answers=False)
    assert not nodes.sent


def test_each_new_node_meets_the_others_both_ways() -> None:
    nodes = Nodes("a", "b")
    nodes.join("c", answers=False)
    assert sorted((node, order.address) for node, order in nodes.sent if isinstance(order, wire.OpenDoor)) == [
        ("a", "at-a"),
        ("b", "at-b"),
        ("c", "at-c"),
        ("c", "at-c"),
    ]
    assert nodes.usable() == ["a", "b", "c"]


@pytest.mark.parametrize("wall", [("a", "b"), ("b", "a")])
def test_of_two_that_cannot_talk_the_newer_is_left_out(wall: tuple[str, str]) -> None:
    nodes = Nodes("a", "b", walls={wall})
    assert nodes.usable() == ["a"]
    guest, host = wall
    assert nodes.warnings == [
        f"{guest} cannot talk to {host} at at-{host} (timed out): b is used only where the other nodes are not enough"
    ]


def test_one_that_nobody_can_talk_to_is_left_out_whenever_it_came() -> None:
    nodes = Nodes("bad", walls={("b", "bad"), ("c", "bad"), ("bad", "c")})
    nodes.join("b")
    assert nodes.usable() == ["bad"], "of two nobody can tell"
    nodes.join("c")
    assert nodes.usable() == ["b", "c"]
    assert len(nodes.warnings) == 2, "once for each pair"


def test_a_node_is_better_than_none() -> None:
    assert Nodes("a", "b", walls={("a", "b")}, least=2).usable() == ["a", "b"]


def test_what_fails_once_may_have_been_a_node_on_its_way_out() -> None:
    nodes = Nodes("a", "b")
    nodes.join("c", answers=False)
    nodes.walls = {("c", "a")}
    first = [nodes.sent.pop(0) for _ in range(len(nodes.sent))]
    for node, order in first:
        nodes.answer(node, order)
    for node, order in [nodes.sent.pop(0) for _ in range(len(nodes.sent))]:
        nodes.answer(node, order)
    nodes.roster.lost("a")
    nodes.peers.lost("a")
    while nodes.sent:
        nodes.answer(*nodes.sent.pop(0))
    assert nodes.warnings == []
    assert nodes.usable() == ["b", "c"]


def test_who_was_left_out_for_one_that_is_gone_is_used_again() -> None:
    nodes = Nodes("a", "b", walls={("b", "a")})
    assert nodes.usable() == ["a"]
    nodes.roster.lost("a")
    nodes.peers.lost("a")
    assert nodes.usable() == ["b"]


def test_a_node_that_comes_back_is_met_again() -> None:
    nodes = Nodes("a", "b", walls={("b", "a")})
    nodes.roster.lost("b")
    nodes.peers.lost("b")
    nodes.walls = set()
    nodes.join("b")
    assert nodes.usable() == ["a", "b"]


def test_a_node_that_cannot_open_a_door() -> None:
    nodes = Nodes("a")
    nodes.join("b", answers=False)
    while nodes.sent:
        node, order = nodes.sent.pop(0)
        if node == "b" and isinstance(order, wire.OpenDoor):
            told = nodes.peers.hear("b", wire.DoorOpen(order.meeting, 0, b"", "no such address"))
            nodes.warnings += [told] if told else []
        else:
            nodes.answer(node, order)
    assert nodes.usable() == ["a"]
    assert "no such address" in nodes.warnings[0]
