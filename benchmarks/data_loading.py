"""1 GB of Parquet into torch: ``read_parquet`` + ``map_batches`` + ``iter_torch_batches``, beside Ray Data and pyarrow.

Each contestant runs in a process of its own; they take turns. The first batch is timed from the call of read_parquet to
the first batch of tensors, with the library imported and, for Ray, the cluster started. CPU time is that of the process
and its children on all cores. Memory is the highest sum of what the process and its children had to themselves
(proportional set size), sampled four times a second. The files are in the page cache: they have just been written.
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

from measure import Findings, Goal, memory, parent, parser, progress, ratio, summary

COLUMNS, GROUP, BATCH = 32, 65_536, 1024
ENDS_WITHIN_S = 240.0
FIRST_TIMES, BARE_TIMES = 10.0, 1.2


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


CONTESTANTS = {"holdfast": ours, "pyarrow": bare, "ray": rays}
NAMES = {"holdfast": "holdfast.data", "pyarrow": "a loop over pyarrow.dataset", "ray": "Ray Data"}


def measure(name: str, directory: str) -> dict[str, float]:
    import pyarrow.dataset  # noqa: F401
    import torch  # noqa: F401

    if name == "ray":
        import ray

        ray.init(address="local", log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    elif name == "holdfast":
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
    found = {"first_s": first, "whole_s": whole, "cpu_s": cpu, "rows_per_s": rows / whole}
    return {**found, "memory_mb": peak.stop() / 1e6}


class Peak:
    def __init__(self) -> None:
        self._most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self._most = max(self._most, sum(map(memory, _family(os.getpid()))))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._most


def _family(pid: int) -> list[int]:
    children: dict[int | None, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(parent(int(entry)), []).append(int(entry))
    found = [pid]
    for each in found:
        found += children.get(each, [])
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


def in_a_process(name: str, directory: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, "--files", directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    if done.returncode:
        sys.exit(f"{NAMES[name]} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    progress(f"{NAMES[name]}: {', '.join(f'{key} {value:.3g}' for key, value in found.items())}")
    return found


def contest(names: list[str], args: argparse.Namespace) -> Findings:
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(dir=args.work_dir) as directory:
        rows = write(Path(directory), args.gigabytes)
        for _ in range(args.repeats):
            for name in names:
                samples[name].append(in_a_process(name, directory))
    columns = ["", "first batch", "rows a second", "all rows", "CPU time", "memory", "all rows, against Holdfast"]
    findings = Findings(f"Reading {args.gigabytes:g} GB of Parquet into torch", columns, samples=dict(samples))
    for name in names:
        of = {what: summary([each[what] for each in samples[name]]) for what in samples[name][0]}
        against = ratio(of["whole_s"].median, median(samples, "holdfast", "whole_s"))
        cells = [of["first_s"].show("s"), of["rows_per_s"].show(), of["whole_s"].show("s"), of["cpu_s"].show("s")]
        findings.rows.append([NAMES[name], *cells, of["memory_mb"].show("MB"), against])
    findings.goals = goals(samples)
    findings.notes = [
        f"{rows:,} rows of {COLUMNS} columns of 8 bytes, 8 files, row groups of {GROUP:,} rows, batches of {BATCH:,}. "
        "The files are in the page cache."
    ]
    return findings


def median(samples: dict[str, list[dict[str, float]]], name: str, what: str) -> float:
    return summary([each[what] for each in samples[name]]).median


def goals(samples: dict[str, list[dict[str, float]]]) -> list[Goal]:
    made = []

    def times(other: str, what: str) -> float:
        return median(samples, other, what) / median(samples, "holdfast", what)

    if "ray" in samples:
        first, rows = times("ray", "first_s"), 1 / times("ray", "rows_per_s")
        made.append(Goal(f"first batch {FIRST_TIMES:g} times sooner than Ray Data", f"{first:.1f} times", first >= 10))
        made.append(Goal("not fewer rows a second than Ray Data", f"{rows:.2f} times as many", rows >= 1))
    if "pyarrow" in samples:
        bare_times = 1 / times("pyarrow", "whole_s")
        text = f"at most {BARE_TIMES:g} times as long as a loop over pyarrow.dataset"
        made.append(Goal(text, f"{bare_times:.2f} times", bare_times <= BARE_TIMES))
    return made


def main() -> None:
    options = parser((__doc__ or "").splitlines()[0])
    options.add_argument("--gigabytes", type=float, default=1.0)
    options.add_argument("--one", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    options.add_argument("--files", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.files)))
        return
    wanted = {"holdfast", "pyarrow", *args.systems.split(",")}
    findings = contest([name for name in CONTESTANTS if name in wanted and _is_installed(name)], args)
    print(findings.text())
    if args.json:
        args.json.write_text(json.dumps(findings.as_json(), indent=1) + "\n")
    sys.exit(0 if all(goal.met for goal in findings.goals) else 1)


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


if __name__ == "__main__":
    main()
