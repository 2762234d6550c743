"""``python flat_memory.py DIRECTORY``: a pass over Parquet files; prints the rows, and the highest memory it had."""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast.data


def main(directory: str) -> None:
    holdfast.data.DataContext.get_current().target_chunk_rows = 10_000
    rows = 0
    dataset = holdfast.data.read_parquet(directory).map_batches(lambda batch: {**batch, "y": batch["x1"] * 2})
    for batch in dataset.iter_batches(batch_size=1024):
        rows += len(batch["y"])
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(rows, int(status["VmHWM"].split()[0]) << 10)


if __name__ == "__main__":
    main(sys.argv[1])
