"""What live mode costs in a step without a fault, of one run: steps by turns, so that load disturbs all alike.

    python benchmarks/live_cost.py [ROUNDS]

Two workers on gloo and CPUs. Each round makes three steps of equal work, in an order that changes: *decorated*, on the
model that is recoverable; *bare*, the same step on the same model, without the decorator; and *plain*, on a second
model whose process group torch made and Holdfast left alone. A cost is the median of the differences within the rounds,
of rank 0, with the CPU time of the process (all its threads). The goal is a share of a step of 30 ms.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_model

WARM, ROUNDS = 50, 1000
STEP_S, GOAL = 0.03, 0.01
NAMES = ("decorated", "bare", "plain")


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def train_loop(config: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    torch.set_num_threads(1)
    plain_group = dist.new_group()  # before Holdfast wraps the default one
    model = prepare_model(network())
    other = torch.nn.parallel.DistributedDataParallel(network(), process_group=plain_group)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, other)]
    state = TrainState(model=model, optimizer=optimizers[0])
    state.resume()
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def step(place: int) -> None:
        optimizers[place].zero_grad()
        torch.nn.functional.cross_entropy((model, other)[place](inputs), labels).backward()
        optimizers[place].step()

    decorated = state.recoverable(step, by_steps=True)
    calls = {"decorated": lambda: decorated(0), "bare": lambda: step(0), "plain": lambda: step(1)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for number in range(WARM + config["rounds"]):
        for place in range(len(NAMES)):
            name = NAMES[(number + place) % len(NAMES)]
            dist.barrier(plain_group)
            wall, cpu = time.perf_counter(), time.process_time()
            calls[name]()
            took = time.perf_counter() - wall, time.process_time() - cpu
            if number >= WARM:
                found[name].append(took)
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as storage:
        result = TorchTrainer(
            train_loop,
            train_loop_config={"rounds": rounds},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="cost", storage_path=storage, verbose=0),
        ).fit()
    found = result.return_value
    for name in NAMES:
        wall, cpu = (statistics.median(column) * 1000 for column in zip(*found[name], strict=True))
        print(f"{name} step: {wall:.3f} ms, CPU {cpu:.3f} ms (median of {rounds})")
    for name, base in (("decorated", "bare"), ("bare", "plain"), ("decorated", "plain")):
        wall, cpu = (
            statistics.median(ours - theirs for ours, theirs in zip(mine, other, strict=True)) * 1000
            for mine, other in zip(zip(*found[name], strict=True), zip(*found[base], strict=True), strict=True)
        )
        share = wall / 1000 / STEP_S
        met = (
            f", goal under {GOAL:.0%}: {'met' if share < GOAL else 'MISSED'}"
            if (name, base) == ("decorated", "plain")
            else ""
        )
        print(f"{name} - {base}: {wall:+.3f} ms ({share:+.2%} of {STEP_S * 1000:.0f} ms{met}), CPU {cpu:+.3f} ms")


if __name__ == "__main__":
    main()
