"""Trivial trials of Ray Tune, with Ray running."""

import json
import sys
import time

import ray
from ray import tune


def trainable(config: dict[str, float]) -> None:
    tune.report({"loss": config["x"]})


if __name__ == "__main__":
    storage, count = sys.argv[1], int(sys.argv[2])
    ray.init(include_dashboard=False, log_to_driver=False)
    for name, samples in (("warm", 2), ("measured", count)):
        began = time.perf_counter()
        grid = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=samples),
            run_config=tune.RunConfig(storage_path=storage, name=name, verbose=0),
        ).fit()
        took = time.perf_counter() - began
        assert len(grid) == samples
    ray.shutdown()
    print(json.dumps({"value": count / took}))
