"""``python -m holdfast.engine.ray.agent_main PARENT FD``: an agent across the network that ends with its Ray actor."""

from __future__ import annotations

import signal
import sys

from holdfast.node import main, posix

if __name__ == "__main__":
    posix.die_with_parent(int(sys.argv[1]), signal.SIGHUP)
    main.main(["caller", sys.argv[2]])
