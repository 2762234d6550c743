"""``read_parquet`` + ``map_batches`` + ``iter_torch_batches`` of holdfast.data, beside Ray Data and beside a bare loop
over ``pyarrow.dataset``, on one machine in one run.

    python benchmarks/data_loading.py [--gigabytes 1] [--rounds 1] [--directory DIR]

Each contestant runs in a process of its own. ``first`` is from the call of read_parquet to the first batch of tensors,
with the library imported and, for Ray, the cluster started; ``whole`` is from there to the last batch. Memory is the
highest sum of what the process and its children had to themselves (proportional set size), sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COLUMNS, GROUP, BATCH = 32, 65_536, 1024


def write(directory: Path, gigabytes: float) -> int:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(gigabytes * (1 << 30)) // (8 * COLUMNS)
    draw = np.random.default_rng(0)
    for number in range(8):
        size = rows // 8
        columns = {f"c{column}": draw.random(size) for column in range(COLUMNS - 1)}
        table = pa.table({"id": np.arange(number * size, (number + 1) * size), **columns})
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=GROUP)
    return rows // 8 * 8


def changed(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"], "x": batch["c0"] * 2 + batch["c1"], **{f"c{n}": batch[f"c{n}"] for n in range(2, 31)}}


def ours(directory: str) -> Iterable[Any]:
    import holdfast.data

    return holdfast.data.read_parquet(directory).map_batches(changed).iter_torch_batches(batch_size=BATCH)


def rays(directory: str) -> Iterable[Any]:
    import ray.data

    return ray.data.read_parquet(directory).map_batches(changed).iter_torch_batches(batch_size=BATCH)


def bare(directory: str) -> Iterable[Any]:
    import pyarrow.dataset
    import torch

    for part in pyarrow.dataset.dataset(directory).to_batches(batch_size=GROUP):
        columns = {name: part.column(name).to_numpy(zero_copy_only=False) for name in part.schema.names}
        made = changed(columns)
        for at in range(0, part.num_rows, BATCH):
            yield {name: torch.as_tensor(array[at : at + BATCH].copy()) for name, array in made.items()}


CONTESTANTS = {"holdfast.data": ours, "ray.data": rays, "pyarrow.dataset": bare}


def measure(name: str, directory: str) -> dict[str, float]:
    import pyarrow.dataset  # noqa: F401
    import torch  # noqa: F401

    if name == "ray.data":
        import ray

        ray.init(log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    elif name == "holdfast.data":
        import holdfast.data.creation
        import holdfast.data.data_iterator
        import holdfast.data.tensors  # noqa: F401
    peak = Peak()
    began = time.perf_counter()
    first, rows, total = 0.0, 0, 0
    for batch in CONTESTANTS[name](directory):
        first = first or time.perf_counter() - began
        rows += len(batch["id"])
        total += int(batch["id"].sum())
    whole = time.perf_counter() - began
    assert total == rows * (rows - 1) // 2, "rows are missing"
    return {"first_s": first, "whole_s": whole, "rows_per_s": rows / whole, "memory_mb": peak.stop() / 1e6}


class Peak:
    def __init__(self) -> None:
        self._most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self._most = max(self._most, sum(map(_own_memory, _family(os.getpid()))))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._most


def _family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _own_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--directory", default=None)
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.directory)))
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        rows = write(Path(directory), given.gigabytes)
        print(f"{rows} rows of {COLUMNS} columns, {given.gigabytes:g} GB, {os.cpu_count()} cores")
        for _ in range(given.rounds):
            for name in CONTESTANTS:
                command = [sys.executable, "-W", "ignore", __file__, "--one", name, "--directory", directory]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"{name:16} first {found['first_s']:7.3f} s  whole {found['whole_s']:6.1f} s  "
                    f"{found['rows_per_s']:9.0f} rows/s  {found['memory_mb']:6.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
