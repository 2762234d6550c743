"""``python -m holdfast.engine.ray.agent_main PARENT FD``: an agent across the network that ends with its Ray actor."""

from __future__ import annotations

import signal
import sys

from holdfast.node import main, posix
from holdfast.wire.objects.session import remove_session_of

if __name__ == "__main__":
    parent = int(sys.argv[1])
    remove_objects = remove_session_of(parent)  # which the actor may not live to do itself
    posix.die_with_parent(parent, signal.SIGHUP)
    main.main(["caller", sys.argv[2]], remove_objects)
