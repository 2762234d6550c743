"""One thread for the lines to all agents."""

from __future__ import annotations

import os
import queue
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.engine.agent_link import Link
from holdfast.engine.switchboard import Switchboard
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack

WITHIN_S = 120.0


class Lines:
    """Some links, and the agents' ends of them."""

    def __init__(self, count: int) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        pairs = [socket.socketpair() for _ in range(count)]
        self.agents = [theirs for _, theirs in pairs]
        self.links = [Link(ours, WITHIN_S) for ours, _ in pairs]
        self._threads: list[threading.Thread] = []

    def serve(self, deliver: Callable[[int, wire.Message], None]) -> None:
        for number, link in enumerate(self.links):
            self._threads.append(threading.Thread(target=self._converse, args=(number, link, deliver)))
            self._threads[-1].start()

    def _converse(self, number: int, link: Link, deliver: Callable[[int, wire.Message], None]) -> None:
        try:
            link.converse(self.inbox, lambda message: deliver(number, message))
        except Exception as error:
            self.inbox.put((number, error))
        else:
            self.inbox.put((number, None))

    def close(self) -> None:
        for link in self.links:
            link.hang_up()
        for thread in self._threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive()
        for link, agent in zip(self.links, self.agents, strict=True):
            link.close()
            agent.close()


@pytest.fixture
def lines() -> Iterator[Callable[[int], Lines]]:
    with ExitStack() as stack:

        def make(count: int) -> Lines:
            made = Lines(count)
            stack.callback(made.close)
            return made

        yield make


def said(number: int) -> bytes:
    return pack(wire.WorkersGone(number))


def test_many_lines_are_heard_by_one_thread(lines: Callable[[int], Lines]) -> None:
    made, threads = lines(50), set()

    def deliver(number: int, message: wire.Message) -> None:
        threads.add(threading.current_thread().name)
        made.inbox.put((number, message))

    made.serve(deliver)
    for number, agent in enumerate(made.agents):
        agent.sendall(said(number) + said(number + 100))
    heard = [made.inbox.get(timeout=WITHIN_S) for _ in range(100)]
    assert {number: [m.attempt_number for of, m in heard if of == number] for number in range(50)} == {
        number: [number, number + 100] for number in range(50)
    }
    assert threads == {"holdfast-lines"}


def test_what_an_agent_does_not_take_at_once_goes_when_it_does(lines: Callable[[int], Lines]) -> None:
    made = lines(2)
    made.serve(lambda number, message: made.inbox.put((number, message)))
    body = b"x" * (8 << 20)  # more than a socket holds
    made.links[0].send(wire.RunTask("large", body, None))
    made.agents[1].sendall(said(7))  # the other line is served meanwhile
    assert made.inbox.get(timeout=WITHIN_S) == (1, wire.WorkersGone(7))
    made.agents[0].settimeout(WITHIN_S)
    unpacker: Unpacker[Any] = Unpacker(wire.TO_AGENT)
    orders: list[Any] = []
    while not any(isinstance(order, wire.RunTask) for order in orders):
        orders.extend(unpacker.feed(made.agents[0].recv(1 << 20)))
    assert next(order for order in orders if isinstance(order, wire.RunTask)).payload == body


def test_lines_whose_inbox_is_full_wait_and_lose_nothing(lines: Callable[[int], Lines]) -> None:
    made = lines(3)
    made.serve(lambda number, message: made.inbox.put((number, message)))
    for number in range(2000):
        for agent in made.agents:
            agent.sendall(said(number))
    heard: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(6000):
        of, message = made.inbox.get(timeout=WITHIN_S)
        assert made.inbox.qsize() <= 1100
        heard[of].append(message.attempt_number)
    assert heard == {of: list(range(2000)) for of in range(3)}


def test_a_mistake_in_one_line_ends_that_line_alone(lines: Callable[[int], Lines]) -> None:
    made = lines(2)

    def deliver(number: int, message: wire.Message) -> None:
        if number == 0:
            raise ValueError("a mistake")
        made.inbox.put((number, message))

    made.serve(deliver)
    made.agents[0].sendall(said(1))
    number, error = made.inbox.get(timeout=WITHIN_S)
    assert number == 0
    assert isinstance(error, ValueError)
    made.agents[1].sendall(said(2))
    assert made.inbox.get(timeout=WITHIN_S) == (1, wire.WorkersGone(2))


def test_the_thread_ends_with_the_last_line_and_comes_again(lines: Callable[[int], Lines]) -> None:
    for _ in range(3):
        made = lines(2)
        made.serve(lambda *_: None)
        made.agents[0].close()
        assert made.inbox.get(timeout=WITHIN_S) == (0, None)
        made.links[1].hang_up()
        assert made.inbox.get(timeout=WITHIN_S) == (1, None)
        thread = next((t for t in threading.enumerate() if t.name == "holdfast-lines"), None)
        if thread is not None:
            thread.join(WITHIN_S)
            assert not thread.is_alive()


def test_the_number_of_a_closed_line_is_not_free_before_the_thread_has_let_go_of_it(
    lines: Callable[[int], Lines],
) -> None:
    """Another line could get it, and would be taken for the closed one."""
    made = lines(1)
    link = made.links[0]

    def deliver(_: int, __: wire.Message) -> None:  # the thread still watches the line
        link.close()
        made.inbox.put(link.socket.fileno())

    made.serve(deliver)
    made.agents[0].sendall(said(1))
    assert made.inbox.get(timeout=WITHIN_S) >= 0
    assert made.inbox.get(timeout=WITHIN_S) == (0, None)
    assert link.socket.fileno() == -1


def test_a_line_that_is_closed_before_it_is_served_ends(lines: Callable[[int], Lines]) -> None:
    made = lines(1)
    made.links[0].close()
    assert made.links[0].socket.fileno() == -1
    made.serve(lambda *_: None)
    assert made.inbox.get(timeout=WITHIN_S) == (0, None)


def test_a_thread_that_cannot_be_started_fails_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, (ours, theirs), inbox = Switchboard(), socket.socketpair(), queue.SimpleQueue[Any]()
    failed, link = Link(ours.dup(), WITHIN_S), Link(ours, WITHIN_S)
    monkeypatch.setattr(failed, "_switchboard", board)
    monkeypatch.setattr(link, "_switchboard", board)
    pipes: list[list[tuple[int, int]]] = []
    selecting: list[selectors.BaseSelector] = []
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", _no_more_threads)
        limited.setattr(os, "pipe", _noting(os.pipe, pipes, lambda ends: [(end, os.fstat(end).st_ino) for end in ends]))
        limited.setattr(selectors, "DefaultSelector", _noting(selectors.DefaultSelector, selecting, lambda made: made))
        with pytest.raises(RuntimeError, match="can't start"):
            failed.converse(inbox, inbox.put)
    failed.close()
    assert failed.socket.fileno() == -1
    assert [selector.get_map() for selector in selecting] == [None]
    assert [[_is_open(*end) for end in ends] for ends in pipes] == [[False, False]]
    theirs.close()
    link.converse(inbox, inbox.put)
    link.close()


def _noting(make: Callable[..., Any], made: list[Any], note: Callable[[Any], Any]) -> Callable[..., Any]:
    """``make``, with a note of all that this thread makes: others may open and close files meanwhile."""
    here = threading.get_ident()

    def making(*arguments: Any) -> Any:
        found = make(*arguments)
        if threading.get_ident() == here:
            made.append(note(found))
        return found

    return making


def _is_open(number: int, inode: int) -> bool:
    """Its number may be another file's by now."""
    try:
        return os.fstat(number).st_ino == inode
    except OSError:
        return False


def _no_more_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
