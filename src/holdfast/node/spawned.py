"""A worker started anew, where forking is not possible: ``-m holdfast.node.spawned PARENT CHANNEL PAYLOAD STACKS``."""

from __future__ import annotations

import sys

from holdfast.worker.main import leave, run

from .posix import die_with_parent, tie_children

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    tie_children()
    leave(run(*map(int, sys.argv[2:5])))
