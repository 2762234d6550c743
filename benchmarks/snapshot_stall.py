"""How long training stands for a snapshot in memory, beside one warm copy of the same size.

    python benchmarks/snapshot_stall.py [MB ...]

Each size is a run of one worker: 2 snapshots that allocate the memory, then 8 with the pause of a step between them.
The copy is between two tensors that were touched before, in the same process, in turn with the snapshots.
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

WARM, MEASURED = 2, 8
TENSORS = 20


def train_loop(config: dict[str, Any]) -> dict[str, list[float]]:
    count = config["mb"] * 1_000_000 // 4 // TENSORS
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.rand(count)) for _ in range(TENSORS)])
    source, target = torch.rand(count * TENSORS), torch.rand(count * TENSORS)
    state = TrainState(model=module)
    state.resume()
    found: dict[str, list[float]] = {"first": [], "snapshot": [], "copy": []}
    for number in range(WARM + MEASURED):
        began = time.perf_counter()
        state.snapshot()
        found["first" if number < WARM else "snapshot"].append(time.perf_counter() - began)
        time.sleep(config["pause_s"])  # a step, in which the agent takes the digest
        began = time.perf_counter()
        target.copy_(source)
        if number >= WARM:
            found["copy"].append(time.perf_counter() - began)
    return found


def main() -> None:
    for mb in [int(argument) for argument in sys.argv[1:]] or [10, 1000]:
        with tempfile.TemporaryDirectory() as storage:
            result = TorchTrainer(
                train_loop,
                train_loop_config={"mb": mb, "pause_s": 0.05 + mb / 1000},
                run_config=train.RunConfig(name="stall", storage_path=storage, verbose=0),
            ).fit()
        took = {name: statistics.median(times) * 1000 for name, times in result.return_value.items()}
        ratio = took["snapshot"] / took["copy"]
        print(
            f"{mb} MB: snapshot {took['snapshot']:.1f} ms, warm copy {took['copy']:.1f} ms, ratio {ratio:.2f}, "
            f"first ones {took['first']:.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
