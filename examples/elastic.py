"""Elastic training: one to four workers, more when nodes join and fewer when they leave.

    python examples/elastic.py

The nodes of the cluster are simulated on this machine, so that you can watch it: one node at first, a second one that
joins and is lost without warning, a third one that replaces it and gets a preemption notice. The train function does
not handle any of this: it saves what it needs to continue, and saves immediately when it is asked to.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import holdfast
from holdfast import train
from holdfast.train import FailureConfig, RunConfig
from holdfast.train.torch import ScalingConfig, TorchTrainer, prepare_model

BATCH = 64  # of all workers together, however many there are


def make_batch(step: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the batch, which is the same batch for any number of workers."""
    x = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(step)) * 6 - 3
    return x[rank::world_size], torch.sin(2 * x)[rank::world_size]


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    context = train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 1))
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    step = 0

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt")
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]

    # The story's end ends the training. Rank 0 looks, so that all ranks make the same number of steps.
    while not train.collective.broadcast_from_rank_zero(Path(config["end"]).exists()):
        x, y = make_batch(step, rank, world_size)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1

        metrics = {"step": step, "workers": world_size, "loss": loss.item()}
        # Every tenth step, and whenever the group is about to end: a planned change then loses no step.
        if rank == 0 and (step % 10 == 0 or train.checkpoint_requested()):
            with tempfile.TemporaryDirectory() as directory:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, Path(directory) / "state.pt")
                train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
        else:
            train.report(metrics)


class Story(train.UserCallback):
    """What happens to the nodes: each part begins when some steps were made by the right number of workers."""

    def __init__(self, cluster: holdfast.LocalCluster, end: Path) -> None:
        self._parts: list[tuple[int, str, Callable[[], object]]] = [
            (1, "a second node joins", lambda: cluster.add_node(cpus=2, node_id="second")),
            (3, "the second node is lost", lambda: cluster.remove_node("second")),
            (1, "a third node joins", lambda: cluster.add_node(cpus=3, node_id="third")),
            (4, "the third node will go in 60 s", lambda: cluster.drain_node("third", deadline_s=60)),
            (1, "that is all", end.touch),
        ]
        self._steps = 0

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if not self._parts or metrics[0]["workers"] != self._parts[0][0]:
            return
        self._steps += 1
        if self._steps >= 20:
            self._steps = 0
            workers, text, act = self._parts.pop(0)
            print(f"step {metrics[0]['step']}, {workers} worker{'s' if workers > 1 else ''}: {text}", flush=True)
            act()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    args = parser.parse_args()

    with holdfast.LocalCluster() as cluster, tempfile.TemporaryDirectory() as directory:
        cluster.add_node(cpus=1, node_id="first")
        end = Path(directory, "end")
        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"end": str(end)},
            scaling_config=ScalingConfig(num_workers=(1, 4), elastic_resize_monitor_interval_s=0.5),
            run_config=RunConfig(
                name=args.run_name,
                storage_path=args.storage_path,
                engine=cluster,
                failure_config=FailureConfig(max_failures=3),
                callbacks=[Story(cluster, end)],
            ),
        )
        result = trainer.fit()
    history = result.metrics_dataframe
    assert history["step"].tolist() == list(range(1, len(history) + 1)), "a step is missing, or there twice"
    print(f"{len(history)} steps by {sorted(set(history['workers'].tolist()))} workers, in {result.path}")
    print(result.ledger)


if __name__ == "__main__":
    main()
