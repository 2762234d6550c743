"""The driver of a run of the soak, to be killed and started again: ``python soak_driver.py HOME ORDERS``.

ORDERS, in JSON, has the nodes that are there at the start. What happens to nodes later comes in on standard input, a
line each; the last line of the output is the outcome.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
import holdfast.train as train
from holdfast.engine.local.agent_process import Network


def add(cluster: holdfast.LocalCluster, node: dict[str, Any]) -> None:
    network = Network(tuple(node["command"]), node["driver"], node["address"]) if "command" in node else None
    cluster.add_node(cpus=node["cpus"], node_id=node["id"], network=network)


def obey(cluster: holdfast.LocalCluster) -> None:
    for line in lines_in():
        what, *details = json.loads(line)
        try:
            if what == "add":
                add(cluster, *details)
            elif what == "remove":
                cluster.remove_node(*details)
            elif what == "drain":
                cluster.drain_node(*details)
        except ValueError as error:
            print(f"too late: {error}", file=sys.stderr)


def lines_in() -> Iterator[bytes]:
    """Without a buffered reader, whose lock an interpreter that ends would wait for."""
    rest = b""
    while data := os.read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def trainer(home: Path, orders: dict[str, Any], cluster: holdfast.LocalCluster) -> train.DataParallelTrainer:
    workers = orders["workers"]
    if orders["torch"]:
        from holdfast.train.torch import TorchTrainer as Trainer
        from support.soak.soak_torch_job import train_fn
    else:
        from holdfast.train import DataParallelTrainer as Trainer
        from support.soak.soak_job import train_fn
    return Trainer(
        train_fn,
        train_loop_config=orders["config"],
        scaling_config=train.ScalingConfig(
            num_workers=workers if isinstance(workers, int) else tuple(workers),
            elastic_resize_monitor_interval_s=orders["resize_s"],
            placement_strategy=orders["placement"],
        ),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(home),
            engine=cluster,
            preload=[] if orders["torch"] else ["soak_job"],
            failure_config=train.FailureConfig(
                max_failures=-1,
                backoff_s=0.01,
                max_backoff_s=0.2,
                hang_timeout_s=orders["hang_s"],
                preemption_grace_s=orders["grace_s"],
            ),
        ),
    )


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    home, orders = Path(sys.argv[1]), json.loads(sys.argv[2])
    with holdfast.LocalCluster() as cluster:
        for node in orders["nodes"]:
            add(cluster, node)
        ear = threading.Thread(target=obey, args=[cluster], daemon=True)
        ear.start()
        result = trainer(home, orders, cluster).fit()
    others = [t.name for t in threading.enumerate() if t not in (threading.main_thread(), ear)]
    account = [sum(result.ledger.parts.values()), result.ledger.wall_clock_s]
    outcome = {"value": result.return_value, "path": result.checkpoint.path, "threads": others, "ledger": account}
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
