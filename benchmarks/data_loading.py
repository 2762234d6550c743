"""``read_parquet`` + ``map_batches`` + ``iter_torch_batches`` of holdfast.data, beside Ray Data and beside a bare loop
over ``pyarrow.dataset``, on one machine in one run.

    python benchmarks/data_loading.py [--gigabytes 1] [--rounds 3] [--ray-rounds 1] [--directory DIR]

Each contestant runs in a process of its own; they take turns. ``first`` is from the call of read_parquet to the first
batch of tensors, with the library imported and, for Ray, the cluster started; ``whole`` goes to the last batch.
``cpu`` is the time of the process and its children on all cores, and counts beside other load. Memory is the highest
sum of what the process and its children had to themselves (proportional set size), sampled. The last lines compare
medians. The files are in the page cache: they have just been written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
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


CONTESTANTS = {"holdfast.data": ours, "pyarrow.dataset": bare, "ray.data": rays}
ENDS_WITHIN_S = 240.0


def measure(name: str, directory: str) -> dict[str, float]:
    import pyarrow.dataset  # noqa: F401
    import torch  # noqa: F401

    if name == "ray.data":
        import ray

        ray.init(address="local", log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    elif name == "holdfast.data":
        import holdfast.data.creation
        import holdfast.data.data_iterator
        import holdfast.data.tensors  # noqa: F401
    peak = Peak()
    used, began = _cpu_time(), time.perf_counter()
    first, rows, total = 0.0, 0, 0
    for batch in CONTESTANTS[name](directory):
        first = first or time.perf_counter() - began
        rows += len(batch["id"])
        total += int(batch["id"].sum())
    whole = time.perf_counter() - began
    assert total == rows * (rows - 1) // 2, "rows are missing"
    cpu = _cpu_time() - used
    memory = peak.stop() / 1e6
    return {"first_s": first, "whole_s": whole, "cpu_s": cpu, "rows_per_s": rows / whole, "memory_mb": memory}


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


def _cpu_time() -> float:
    """Of the process, of its children, and of those of them that have ended."""
    ticks = 0
    for pid in _family(os.getpid()):
        try:
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray-rounds", type=int, default=1, help="0 leaves Ray Data out")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.directory)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        rows = write(Path(directory), given.gigabytes)
        print(f"{rows} rows of {COLUMNS} columns, {given.gigabytes:g} GB, {os.cpu_count()} cores", flush=True)
        for number in range(max(given.rounds, given.ray_rounds)):
            for name in CONTESTANTS:
                if number < (given.ray_rounds if name == "ray.data" else given.rounds):
                    found.setdefault(name, []).append(_in_a_process(name, directory))
    _compare(found)


def _in_a_process(name: str, directory: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, "--directory", directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{name:16} first {found['first_s']:7.3f} s  whole {found['whole_s']:6.1f} s  cpu {found['cpu_s']:6.1f} s  "
        f"{found['rows_per_s']:9.0f} rows/s  {found['memory_mb']:6.0f} MB",
        flush=True,
    )
    return found


def _compare(found: dict[str, list[dict[str, float]]]) -> None:
    def median(name: str, what: str) -> float:
        return statistics.median(each[what] for each in found[name])

    for other in list(found)[1:]:
        ratios = {what: median("holdfast.data", what) / median(other, what) for what in found[other][0]}
        print(
            f"holdfast.data / {other}: first {ratios['first_s']:.3f}, whole {ratios['whole_s']:.2f}, "
            f"cpu {ratios['cpu_s']:.2f}, rows/s {ratios['rows_per_s']:.2f}, memory {ratios['memory_mb']:.2f}"
        )


if __name__ == "__main__":
    main()
