"""The trainer of a framework as a trainable: ``python tuned_trainer_job.py STORAGE FRAMEWORK``. Its workers form a
group in each of two trials, of which the one with more depth or rate is better."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from holdfast import train, tune

X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
Y = X.sum(1)


def mine(values: Any) -> Any:
    return values[train.get_context().get_world_rank() :: train.get_context().get_world_size()]


def with_xgboost(config: dict[str, Any]) -> None:
    import xgboost

    from holdfast.train.xgboost import RayTrainReportCallback, remaining_rounds

    assert xgboost.collective.get_world_size() == 2
    data = xgboost.DMatrix(mine(X), mine(Y))
    parameters = {"max_depth": config["value"], "eval_metric": "rmse", "nthread": 1}
    report = RayTrainReportCallback(metrics={"loss": "train-rmse"}, frequency=2)
    evals = [(data, "train")]
    xgboost.train(parameters, data, evals=evals, verbose_eval=False, callbacks=[report], **remaining_rounds(4))


def with_lightgbm(config: dict[str, Any]) -> None:
    import lightgbm

    from holdfast.train.lightgbm import RayTrainReportCallback, get_network_params, remaining_rounds

    assert get_network_params()["num_machines"] == 2
    data = lightgbm.Dataset(mine(X), mine(Y), free_raw_data=False)
    parameters = {"objective": "regression", "metric": "l2", "verbose": -1, "num_threads": 1, "tree_learner": "data"}
    parameters |= {"max_depth": config["value"], "min_data_in_leaf": 5, "pre_partition": True, **get_network_params()}
    report = RayTrainReportCallback(metrics={"loss": "train-l2"}, frequency=2)
    sets = {"valid_sets": [data], "valid_names": ["train"]}
    lightgbm.train(parameters, data, callbacks=[report], **sets, **remaining_rounds(4))


def with_tensorflow(config: dict[str, Any]) -> None:
    import tensorflow as tf

    from holdfast.train.tensorflow import prepare_dataset_shard
    from holdfast.train.tensorflow.keras import ReportCheckpointCallback

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(optimizer=tf.keras.optimizers.SGD(config["value"] / 100), loss="mse")
    data = tf.data.Dataset.from_tensor_slices((mine(X), mine(Y))).batch(20, drop_remainder=True)
    model.fit(prepare_dataset_shard(data), epochs=4, callbacks=[ReportCheckpointCallback()], verbose=0)


def with_jax(config: dict[str, Any]) -> None:
    import jax
    import jax.numpy as jnp

    assert jax.process_count() == 2
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    xs, ys = (jax.make_array_from_callback(a.shape, split, lambda at, a=a: a[at]) for a in (X, Y))
    gradient = jax.jit(jax.value_and_grad(lambda w, xs, ys: jnp.mean((xs @ w - ys) ** 2)))
    w = jnp.zeros(4)
    for _ in range(4):
        loss, slope = gradient(w, xs, ys)
        w = w - config["value"] / 100 * slope
        with tempfile.TemporaryDirectory() as directory:
            np.save(Path(directory, "w.npy"), np.asarray(w))
            saved = train.Checkpoint.from_directory(directory) if jax.process_index() == 0 else None
            train.report({"loss": float(loss)}, saved)


def trainer(framework: str) -> tuple[type[train.DataParallelTrainer], Any, str, Any]:
    """Its class, its train function, and the argument for its configuration."""
    if framework == "xgboost":
        from holdfast.train.xgboost import XGBoostConfig, XGBoostTrainer

        return XGBoostTrainer, with_xgboost, "xgboost_config", XGBoostConfig()
    if framework == "lightgbm":
        from holdfast.train.lightgbm import LightGBMConfig, LightGBMTrainer

        return LightGBMTrainer, with_lightgbm, "lightgbm_config", LightGBMConfig()
    if framework == "tensorflow":
        from holdfast.train.tensorflow import TensorflowConfig, TensorflowTrainer

        return TensorflowTrainer, with_tensorflow, "tensorflow_config", TensorflowConfig()
    from holdfast.train.jax import JaxConfig, JaxTrainer

    return JaxTrainer, with_jax, "jax_config", JaxConfig()


def main() -> None:
    kind, fn, argument, config = trainer(sys.argv[2])
    tuner = tune.Tuner(
        kind(fn, scaling_config=train.ScalingConfig(num_workers=2)),
        param_space={"train_loop_config": {"value": tune.grid_search([1, 4])}, argument: config},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=train.RunConfig(name="tuned", storage_path=sys.argv[1], verbose=0),
    )
    results = tuner.fit()
    assert not results.errors, results.errors
    best = results.get_best_result()
    assert best.config is not None
    assert best.checkpoint is not None
    rounds = len(best.metrics_dataframe)
    print(json.dumps([best.config["train_loop_config"]["value"], rounds, sorted(os.listdir(best.checkpoint.path))]))


if __name__ == "__main__":
    main()
