"""Trivial trials, each a process: how many a second, from the first to the end of fit()."""

import json
import sys
import time

from holdfast import tune


def trainable(config: dict[str, float]) -> None:
    tune.report({"loss": config["x"]})


if __name__ == "__main__":
    storage, count = sys.argv[1], int(sys.argv[2])
    for name, samples in (("warm", 4), ("measured", count)):
        began = time.perf_counter()
        grid = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=samples),
            run_config=tune.RunConfig(storage_path=storage, name=name, verbose=0),
        ).fit()
        took = time.perf_counter() - began
        assert len(grid) == samples
        assert not grid.num_errors
    print(json.dumps({"value": count / took}))
