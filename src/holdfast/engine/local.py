"""The embedded engine: this machine is the one node, and takes as many workers as are asked for."""

from __future__ import annotations

import glob
import math

from .cluster import LocalCluster

NODE = "local-0"


class LocalEngine(LocalCluster):
    grows = False

    def __init__(self) -> None:
        super().__init__()
        self._gpus = len(glob.glob("/dev/nvidia[0-9]*"))
        self.add_node(cpus=math.inf, gpus=self._gpus, node_id=NODE)

    def check(self, gpus: float) -> None:
        if gpus > self._gpus:
            raise ValueError(
                f"the workers ask for {gpus:g} GPUs in all, and this machine has {self._gpus}: "
                "use ScalingConfig(use_gpu=False), or fewer workers"
            )
