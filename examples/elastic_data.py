"""The number of workers changes in the middle of an epoch: no sample is skipped, none is seen twice.

    python examples/elastic_data.py

Four nodes on this machine train with a global batch of 48. Two are removed, later one comes back. The order of the
samples, the global batches and the random augmentation do not depend on the number of workers; the position in the
data is a few numbers in the checkpoint. The script counts each sample of each step, in the checkpoint too, so the work
of a lost attempt after its last checkpoint does not count.
"""

from __future__ import annotations

import argparse
import queue
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import holdfast
from holdfast import train
from holdfast.train.torch import (
    ElasticSampler,
    SeededDataset,
    TorchTrainer,
    prepare_data_loader,
    prepare_model,
    seed_rng,
)

SAMPLES, GLOBAL_BATCH, SEED = 1500, 48, 0


class NoisySine(Dataset[Any]):
    """A curve with noise that is drawn again whenever a sample is read."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        x = 6 * index / SAMPLES - 3 + random.gauss(0, 0.01)
        return index, torch.tensor([x]), torch.sin(2 * torch.tensor([x])) + 0.1 * torch.randn(1)


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    context = train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(SEED)
    network = nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1))
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    data = SeededDataset(NoisySine(), seed=SEED)
    sampler = ElasticSampler(data, global_batch_size=GLOBAL_BATCH, seed=SEED)
    # A worker takes at most 16 samples at a time. If there are fewer than three workers, gradients accumulate.
    loader: Any = prepare_data_loader(DataLoader(data, batch_size=16, sampler=sampler, num_workers=1))
    step, seen, sizes = 0, torch.zeros(config["epochs"], SAMPLES, dtype=torch.int64), []

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt")
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step, seen, sizes = state["step"], state["seen"], state["sizes"]

    seed_rng(SEED, step, rank)  # for dropout: derived at each step, so that there is no random state to save
    for epoch in range(loader.epoch, config["epochs"]):
        loader.set_epoch(epoch)
        counted = torch.zeros(SAMPLES, dtype=torch.int64)
        for index, x, y in loader:
            loss = nn.functional.mse_loss(model(x), y) * loader.weight
            loss.backward()
            if loader.weight:
                counted[index] += 1
            if not loader.ends_step:
                continue
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(counted)
            seen[epoch] += counted
            counted.zero_()
            step, sizes = step + 1, [*sizes, workers]
            seed_rng(SEED, step, rank)
            time.sleep(config["pause"])
            if step % 5 == 0 or train.checkpoint_requested():
                report(rank, step, loss.item(), network, optimizer, loader, seen, sizes)
    report(rank, step, loss.item(), network, optimizer, loader, seen, sizes)


def report(
    rank: int, step: int, loss: float, network: Any, optimizer: Any, loader: Any, seen: torch.Tensor, sizes: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if rank == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
            torch.save({**state, "step": step, "seen": seen, "sizes": sizes}, Path(directory) / "state.pt")
        train.report({"step": step, "loss": loss}, checkpoint=train.Checkpoint.from_directory(directory))


class Steps(train.UserCallback):
    """Tells the script how far training is."""

    def __init__(self) -> None:
        self.done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.done.put(metrics[0]["step"])

    def reach(self, step: int) -> None:
        while self.done.get() < step:
            pass


def change_nodes(cluster: holdfast.LocalCluster, steps: Steps) -> None:
    nodes = [node.id for node in cluster.nodes]
    steps.reach(20)
    print("two nodes are lost", flush=True)
    cluster.remove_node(nodes[1])
    cluster.remove_node(nodes[2])
    steps.reach(45)
    print("a node comes", flush=True)
    cluster.add_node(cpus=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds that each step takes longer")
    args = parser.parse_args()

    steps = Steps()
    with holdfast.LocalCluster() as cluster:
        for _ in range(4):
            cluster.add_node(cpus=1)
        threading.Thread(target=change_nodes, args=(cluster, steps), daemon=True).start()
        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"epochs": args.epochs, "pause": args.pause},
            scaling_config=train.ScalingConfig(num_workers=(1, 4), elastic_resize_monitor_interval_s=0.5),
            run_config=train.RunConfig(
                name=args.run_name,
                storage_path=args.storage_path,
                engine=cluster,
                callbacks=[steps],
                failure_config=train.FailureConfig(max_failures=3),
            ),
        )
        result = trainer.fit()

    with result.checkpoint.as_directory() as directory:  # wherever the run is stored
        state = torch.load(Path(directory) / "state.pt")
    runs = [workers for i, workers in enumerate(state["sizes"]) if i == 0 or state["sizes"][i - 1] != workers]
    print(f"{state['step']} steps by {', '.join(map(str, runs))} workers")
    for epoch, counts in enumerate(state["seen"]):
        once = int((counts == 1).sum())
        print(f"epoch {epoch}: {once} of {SAMPLES} samples once, {int((counts > 1).sum())} more often")
    assert bool((state["seen"] == 1).all())


if __name__ == "__main__":
    main()
