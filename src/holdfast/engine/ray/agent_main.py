"""``python -m holdfast.engine.ray.agent_main PARENT FD``: an agent across the network that exits with its Ray actor.

When Ray ends an actor, it may kill the actor's children first, and so the agent, but not their children: a child of the
agent stays to remove the node's shared objects.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from holdfast.node import agent_entry
from holdfast.objects.object_session import remove_session_of
from holdfast.platform import process_control


def when_this_has_ended(do: Callable[[], None]) -> None:
    """However it ends: a fork waits for that."""
    ended, _held = os.pipe()  # this process never closes its end
    if os.fork():
        os.close(ended)
        return
    try:
        process_control.set_name("hf-broom")
        os.close(_held)
        os.read(ended, 1)
        do()
    finally:
        os._exit(0)


if __name__ == "__main__":
    parent = int(sys.argv[1])
    when_this_has_ended(remove_session_of(parent))
    process_control.die_with_parent(parent, signal.SIGHUP)
    agent_entry.main(["caller", sys.argv[2]])
