"""A driver in a process of its own. ``python sharded_run.py HOME DATA STORAGE`` begins a run over a dataset, or
resumes it. In the middle of the first epoch the ranks wait until there is a file ``seen`` in HOME."""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast.data
from holdfast import train
from support.data.data_job import train_fn

EPOCHS = 2
WAIT_AFTER = 10  # steps of 25


def main(home: Path, data: str, storage: str) -> None:
    config = {"epochs": EPOCHS, "shuffle": 20, "pause_s": 0, "wait_after": WAIT_AFTER}
    trainer = train.DataParallelTrainer(
        train_fn,
        train_loop_config={**config, "notes": str(home / "notes"), "all_sizes_seen": str(home / "seen")},
        datasets={"train": holdfast.data.read_parquet(data).random_shuffle(seed=5)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=storage, verbose=0),
    )
    trainer.fit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
