"""How long training stands for a snapshot in memory, beside one warm copy of the same size; and how long the next
update waits until that snapshot is complete.

    python benchmarks/snapshot_stall.py [MB ...]

Each size is a run of one worker: 2 snapshots that allocate the memory, then 16. The copy is between two tensors that
were touched before, in the same process, in turn with the snapshots.

With a snapshot after each step, the next update waits until that one is complete (decision 31). The wait is the time of
``optimizer.step()`` for one small parameter, whose update takes some microseconds: by turns after a pause in which
gradients would be computed, and immediately after the snapshot, as if they took no time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from typing import Any

import torch

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState

WARM, MEASURED = 2, 16
TENSORS = 20


def train_loop(config: dict[str, Any]) -> dict[str, list[float]]:
    count = config["mb"] * 1_000_000 // 4 // TENSORS
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.rand(count)) for _ in range(TENSORS)])
    source, target = torch.rand(count * TENSORS), torch.rand(count * TENSORS)
    small = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([small], lr=0.01)
    small.grad = torch.ones(1)
    state = TrainState(model=module, optimizer=optimizer)
    state.resume()
    found: dict[str, list[float]] = {"first": [], "snapshot": [], "copy": [], "wait": [], "wait at once": []}
    for number in range(WARM + MEASURED):
        began = time.perf_counter()
        state.snapshot()
        found["first" if number < WARM else "snapshot"].append(time.perf_counter() - began)
        is_at_once = number % 2 == 1
        if not is_at_once:
            time.sleep(config["pause_s"])  # a step, in which the agent takes the digest
        began = time.perf_counter()
        optimizer.step()
        if number >= WARM:
            found["wait at once" if is_at_once else "wait"].append(time.perf_counter() - began)
        began = time.perf_counter()
        target.copy_(source)
        if number >= WARM:
            found["copy"].append(time.perf_counter() - began)
    return found


def pause_s(mb: int) -> float:
    return 0.05 + mb / 1000


def main() -> None:
    for mb in [int(argument) for argument in sys.argv[1:]] or [10, 1000]:
        with tempfile.TemporaryDirectory() as storage:
            result = TorchTrainer(
                train_loop,
                train_loop_config={"mb": mb, "pause_s": pause_s(mb)},
                run_config=train.RunConfig(name="stall", storage_path=storage, verbose=0),
            ).fit()
        took = {name: statistics.median(times) * 1000 for name, times in result.return_value.items()}
        ratio = took["snapshot"] / took["copy"]
        print(
            f"{mb} MB: snapshot {took['snapshot']:.1f} ms, warm copy {took['copy']:.1f} ms, ratio {ratio:.2f}, "
            f"first ones {took['first']:.0f} ms; the update waits {took['wait']:.2f} ms after a pause of "
            f"{pause_s(mb) * 1000:.0f} ms, {took['wait at once']:.1f} ms without one",
            flush=True,
        )


if __name__ == "__main__":
    main()
