"""The embedded engine: this machine is the one node, and takes as many workers as are asked for."""

from __future__ import annotations

import glob
import math
import os

from holdfast.engine.local.local_cluster import LocalCluster

NODE = "local-0"


class LocalEngine(LocalCluster):
    grows = False
    is_this_machine = True

    def __init__(self) -> None:
        super().__init__()
        self._gpus = gpus_to_be_seen()
        self.add_node(cpus=math.inf, gpus=self._gpus, node_id=NODE)

    def check(self, gpus: float) -> None:
        if gpus > self._gpus:
            raise ValueError(
                f"the workers need {gpus:g} GPUs, but this machine has {self._gpus}: use "
                f"ScalingConfig(use_gpu=False), or fewer workers"
            )


def gpus_to_be_seen() -> int:
    there = len(glob.glob("/dev/nvidia[0-9]*"))
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None or not there:
        return there
    names = given.split(",")
    return names.index("-1") if "-1" in names else len(list(filter(None, names)))
