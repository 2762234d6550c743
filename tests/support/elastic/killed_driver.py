"""A driver for a test to kill: ``python killed_driver.py HOME FAULT`` trains on the nodes "good" and "bad"."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import holdfast
from support.elastic.elastic_job import Scene


def main() -> None:
    with holdfast.LocalCluster() as cluster:
        cluster.add_node(cpus=1, node_id="good")
        cluster.add_node(cpus=1, node_id="bad")
        scene = Scene(Path(sys.argv[1]), cluster)
        scene.trainer((1, 2), config={"fault": json.loads(sys.argv[2])}, max_failures=2).fit()


if __name__ == "__main__":
    main()
