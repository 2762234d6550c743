"""An agent that is killed together with its Ray actor."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.ray_clusters.ray_machines import our_processes, wait_until

ACTOR = """
import sys
from holdfast.engine.ray.agent_actor import HoldfastAgent
from holdfast.objects.object_session import own_session

session = own_session()
agent = HoldfastAgent("run", "node")._start({"host": "127.0.0.1", "port": int(sys.argv[1]), "token": "00"})
print(agent.pid, session.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("agent_first", [True, False])
def test_what_a_killed_actor_and_its_killed_agent_had_of_shared_objects_goes(agent_first: bool) -> None:
    """As Ray does it: first the children, then the actor. Or the other way round."""
    with socket.create_server(("127.0.0.1", 0)) as driver:
        driver.settimeout(60)
        command = [sys.executable, "-c", ACTOR, str(driver.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as actor:
            try:
                assert actor.stdout is not None
                agent, directory = actor.stdout.readline().split()
                line, _ = driver.accept()  # by an agent that is at work
                assert Path(directory).is_dir()
            finally:
                for pid in (int(agent), actor.pid) if agent_first else (actor.pid, int(agent)):
                    with suppress(ProcessLookupError):  # one without its actor ends by itself
                        os.kill(pid, signal.SIGKILL)
        line.close()
    wait_until(lambda: not Path(directory).exists(), "the end of the objects' directory")
    wait_until(lambda: not list(our_processes()), "the end of all processes")
