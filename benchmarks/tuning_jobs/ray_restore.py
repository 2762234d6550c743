"""Restore an experiment all of whose trials have finished: from restore() to the results. Made first, if need be."""

import json
import sys
import time

import ray
from ray import tune


def trainable(config: dict[str, float]) -> dict[str, float]:
    return {"loss": config["x"]}


if __name__ == "__main__":
    storage, count = sys.argv[1], int(sys.argv[2])
    ray.init(include_dashboard=False, log_to_driver=False)
    if not tune.Tuner.can_restore(f"{storage}/finished"):  # else it was made before, by this script
        tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=count, metric="loss", mode="min", reuse_actors=True),
            run_config=tune.RunConfig(storage_path=storage, name="finished", verbose=0),
        ).fit()
    began = time.perf_counter()
    grid = tune.Tuner.restore(f"{storage}/finished", trainable=trainable).fit()
    took = time.perf_counter() - began
    assert len(grid) == count
    assert grid.get_best_result("loss", "min") is not None
    ray.shutdown()
    print(json.dumps({"value": took}))
