"""Results of one trial: how many a second, from the first to the end of fit().

With "asha", its scheduler decides on them; with "stop", a function of the script does, on each before it continues.
"""

import json
import sys
import time

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler


def trainable(config: dict[str, int]) -> None:
    began = time.time()
    for step in range(config["count"]):
        tune.report({"loss": step, "began": began})


if __name__ == "__main__":
    storage, count, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    scheduler = ASHAScheduler(max_t=10 * count) if kind == "asha" else None
    stop = (lambda _trial, result: result["loss"] < 0) if kind == "stop" else None
    ray.init(include_dashboard=False, log_to_driver=False)
    grid = tune.Tuner(
        trainable,
        param_space={"count": count},
        tune_config=tune.TuneConfig(metric="loss", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=storage, name="results", stop=stop, verbose=0),
    ).fit()
    ended = time.time()
    metrics = grid[0].metrics
    assert metrics["training_iteration"] == count
    ray.shutdown()
    print(json.dumps({"value": count / (ended - metrics["began"])}))
