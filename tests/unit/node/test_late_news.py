"""A worker may be quicker than the news that it was forked: what it says is heard after that all the same."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import cloudpickle

from holdfast.node.agent import Agent
from holdfast.node.launch import SpawnLauncher
from holdfast.wire import messages as wire
from holdfast.wire.channel import Channel
from holdfast.wire.zygote_messages import Exited, Forked, ProcessPaused
from support.node import trial_work
from support.node.agent_at_work import configure


class LateLauncher(SpawnLauncher):
    """Tells of a fork when the process has ended."""

    _held: Forked | None = None

    def say(self, event: Forked | Exited | ProcessPaused) -> None:
        if isinstance(event, Forked):
            self._held = event
            return
        if self._held is not None:
            super().say(self._held)
        super().say(event)


def test_a_worker_that_has_returned_before_it_is_known(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    agent = threading.Thread(target=Agent(theirs, LateLauncher()).run)
    agent.start()
    channel: Channel[wire.RunNews] = Channel(ours, wire.TO_DRIVER)
    env = {os.fsencode(k): os.fsencode(v) for k, v in {**os.environ, "TMPDIR": str(tmp_path)}.items()}
    channel.send(configure(tmp_path / "run", trial_work.leave_a_file, env=env))
    channel.send(wire.StartWorkers(1, 1, 0, None, [wire.Place(0, 0, 1, 0)]))
    said: list[wire.Message] = []
    for message in channel.receive():
        said.append(message)
        if isinstance(message, wire.WorkersGone):
            break
    channel.send(wire.Shutdown())
    agent.join(60)
    channel.close()
    kinds = [type(message) for message in said if not isinstance(message, wire.Output)]
    assert kinds == [
        wire.NodeReady,
        wire.WorkerStarted,
        wire.WorkerIsReady,
        wire.WorkerHasReturned,
        wire.WorkersGone,
    ]
    (returned,) = [message for message in said if isinstance(message, wire.WorkerHasReturned)]
    assert os.path.exists(cloudpickle.loads(returned.body)), "what a worker leaves that returned is its user's"
