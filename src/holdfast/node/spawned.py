"""A worker started again, where forking is not possible: ``-m holdfast.node.spawned PARENT CHANNEL PAYLOAD STACKS``."""

from __future__ import annotations

import sys

from holdfast.platform.process_control import die_with_parent, tie_children
from holdfast.worker.training_process import leave, run

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    tie_children()
    leave(run(*map(int, sys.argv[2:5])))
