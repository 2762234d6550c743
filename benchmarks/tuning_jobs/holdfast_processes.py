"""Many trials that are a process each: what an ended one costs the driver in memory, and whether the rate holds."""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import tune


def trainable(config: dict[str, float]) -> None:
    tune.report({"loss": config["x"] * config["y"]})


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Marks(tune.Callback):
    def __init__(self, every: int) -> None:
        self.every, self.ended = every, 0
        self.marks = [(time.perf_counter(), resident())]

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        self.ended += 1
        if self.ended % self.every == 0:
            self.marks.append((time.perf_counter(), resident()))


if __name__ == "__main__":
    storage, count = sys.argv[1], int(sys.argv[2])
    noted = Marks(count // 10)
    grid = tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=count),
        run_config=tune.RunConfig(storage_path=storage, name="many", verbose=0, callbacks=[noted]),
    ).fit()
    assert len(grid) == count
    assert not grid.num_errors
    marks, tenth = noted.marks, count / 10
    found = {
        "rate": count / (marks[-1][0] - marks[0][0]),
        "first_rate": tenth / (marks[2][0] - marks[1][0]),  # the first of all begins with the start of an agent
        "last_rate": tenth / (marks[-1][0] - marks[-2][0]),
        "bytes_each": (marks[-1][1] - marks[2][1]) / (count - 2 * tenth),
    }
    print(json.dumps(found))
