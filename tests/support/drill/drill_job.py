"""A job without a framework that starts in a fraction of a second. ``python drill_job.py [FLAW] [--name NAME]``.

FLAW: none, ignores (the checkpoint is never read), forgets (a part of the state is not restored), unseeded; failing or
hanging when it is restored; broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import train

STEPS = 10


def train_fn(config: dict[str, Any]) -> None:
    rank, flaw = train.get_context().get_world_rank(), config["flaw"]
    state = {"weights": 1 if flaw != "unseeded" else os.getpid(), "momentum": 0, "step": 0}
    if flaw != "ignores" and (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            saved = json.loads(Path(directory, f"rank-{rank}.json").read_text())
        state = saved | ({"momentum": 0} if flaw == "forgets" else {})
        if flaw == "hanging":
            signal.pause()
        if flaw == "failing":
            raise ValueError("this checkpoint is of no use")
    while state["step"] < STEPS:
        state["momentum"] = (state["momentum"] * 7 + state["step"]) % 1009
        state["weights"] = (state["weights"] * 31 + state["momentum"] + rank) % 1_000_003
        state["step"] += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank-{rank}.json").write_text(json.dumps(state))
            metrics = {"step": state["step"], "weights": state["weights"], "seconds": time.time()}
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
        time.sleep(config["pause"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("flaw", nargs="?", default="none")
    parser.add_argument("--name", default="run")
    parser.add_argument("--max-failures", type=int, default=3)
    parser.add_argument("--least", type=int, default=2, help="workers, of two")
    parser.add_argument("--nodes", type=int, default=0, help="a cluster of its own, with so many nodes")
    parser.add_argument("--engine", help="that the script names by itself")
    parser.add_argument("--pause", type=float, default=0.03, help="seconds between two steps")
    args = parser.parse_args()
    if args.flaw == "broken":
        sys.exit("this script does not even start")
    with holdfast.LocalCluster() as cluster:
        for _ in range(args.nodes):
            cluster.add_node(cpus=1)
        fit(args, cluster if args.nodes else args.engine)


def fit(args: argparse.Namespace, engine: holdfast.LocalCluster | str | None) -> None:
    train.DataParallelTrainer(
        train_fn,
        train_loop_config={"flaw": args.flaw, "pause": args.pause},
        scaling_config=train.ScalingConfig(num_workers=2 if args.least == 2 else (args.least, 2)),
        run_config=train.RunConfig(
            name=args.name or None,
            engine=engine,
            failure_config=train.FailureConfig(max_failures=args.max_failures, backoff_s=0.05),
        ),
    ).fit()


if __name__ == "__main__":
    main()
