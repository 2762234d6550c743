"""A worker started anew, where forking is not possible: ``python -m holdfast.node.spawned CHANNEL PAYLOAD PARENT``."""

from __future__ import annotations

import sys

from holdfast.worker.main import leave, run

from .posix import die_with_parent, tie_children

if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    tie_children()
    leave(run(int(sys.argv[1]), int(sys.argv[2])))
