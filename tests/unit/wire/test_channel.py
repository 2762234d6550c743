"""Messages over a stream: however the bytes arrive, the messages are whole and in order."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import messages as wire
from holdfast.wire.channel import Channel, Unpacker, pack
from holdfast.wire.worker_messages import Report

SAID: list[Any] = [
    wire.NodeReady("n1", 7, 2),
    wire.Reports(1, 3, [Report(0, b'{"loss":1}'), Report(1, b"x" * 5000, True, "best")]),
    wire.NodeNews([wire.Sealed(1, 0, 4, [("model.pt", 7, "d", "")]), wire.Reports(2, 1, [])]),
    wire.OfRun(3, wire.WorkersGone(1)),
]
STREAM = b"".join(map(pack, SAID))


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_messages_are_whole_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    unpacker: Unpacker[Any] = Unpacker(wire.TO_DRIVER)
    places = [0, *sorted(cuts), len(STREAM)]
    heard = [list(unpacker.feed(STREAM[a:b])) for a, b in itertools.pairwise(places)]
    assert list(itertools.chain(*heard)) == SAID


def test_a_message_of_another_direction_is_refused() -> None:
    unpacker: Unpacker[Any] = Unpacker(wire.TO_AGENT)
    with pytest.raises(ValueError, match="Invalid value"):
        list(unpacker.feed(STREAM))


def test_a_channel_that_is_closed_wakes_who_receives() -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[Any] = Channel(ours, wire.TO_DRIVER)
    heard: list[Any] = []
    thread = threading.Thread(target=lambda: heard.extend(channel.receive()))
    thread.start()
    Channel[Any](theirs, wire.TO_AGENT).send(SAID[0])
    channel.close()
    thread.join(30)
    assert not thread.is_alive()
    assert heard in ([], SAID[:1])
    theirs.close()
