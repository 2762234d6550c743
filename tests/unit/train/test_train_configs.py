from __future__ import annotations

import logging
import math
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.train import (
    BackendConfig,
    CheckpointConfig,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
    UserCallback,
    report,
)
from holdfast.train.checks import WrongTypeError
from holdfast.train.data import Whole
from holdfast.train.torch import TorchConfig
from holdfast.train.unused import warn_unused_in_training
from holdfast.train.worker_demand import demand_of
from holdfast.tune import Callback


def report_once() -> None:
    report({"x": 1})


def a_trainer(datasets: dict[str, Any], config: DataConfig) -> DataParallelTrainer:
    return DataParallelTrainer(report_once, datasets=datasets, dataset_config=config)


BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ScalingConfig(num_workers=-1), ValueError, "num_workers=-1): must be at least 0"),
    (lambda: ScalingConfig(num_workers=2.0), TypeError, "num_workers=2.0): pass an int"),
    (lambda: ScalingConfig(num_workers=True), TypeError, "num_workers=True"),
    (lambda: ScalingConfig(num_workers=(4, 2)), ValueError, "1 <= min <= max"),
    (lambda: ScalingConfig(num_workers=(0, 2)), ValueError, "1 <= min <= max"),
    (lambda: ScalingConfig(num_workers=(1, 2, 3)), TypeError, "(min, max)"),
    (lambda: ScalingConfig(num_workers=(1, "2")), TypeError, "(min, max)"),
    (lambda: ScalingConfig(use_gpu=1), TypeError, "use_gpu=1): pass True or False"),
    (lambda: ScalingConfig(use_gpu=True, use_tpu=True), ValueError, "pick one"),
    (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), ValueError, "set use_gpu=True"),
    (lambda: ScalingConfig(use_gpu=True, resources_per_worker={"GPU": 0}), ValueError, "set use_gpu=False"),
    (lambda: ScalingConfig(resources_per_worker=4), TypeError, "resources_per_worker=4): pass a dict"),
    (lambda: ScalingConfig(resources_per_worker={"CPU": -1}), ValueError, "['CPU']=-1): must be at least 0"),
    (lambda: ScalingConfig(placement_strategy="pack"), ValueError, "PACK, SPREAD"),
    (lambda: ScalingConfig(elastic_resize_monitor_interval_s=-1), ValueError, "must be at least 0"),
    (lambda: ScalingConfig(num_workers=2, label_selector=[{}]), ValueError, "one entry for each of the 2 workers"),
    (lambda: FailureConfig(max_failures=-2), ValueError, "max_failures=-2): must be at least -1"),
    (lambda: FailureConfig(max_failures="3"), TypeError, "max_failures='3'): pass an int"),
    (lambda: FailureConfig(max_failures=None), TypeError, "max_failures=None): pass an int"),
    (lambda: ScalingConfig(label_selector="x"), TypeError, "pass a dict of labels"),
    (lambda: ScalingConfig(label_selector=["x"]), TypeError, "pass a dict of labels"),
    (lambda: ScalingConfig(label_selector={"a": 1}), TypeError, "pass a dict of labels"),
    (lambda: ScalingConfig(label_selector={"my zone": "a"}), ValueError, "'my zone' is not a valid label key"),
    (lambda: ScalingConfig(label_selector={"zone": "in()"}), ValueError, "'in()' is not a valid label value"),
    (lambda: ScalingConfig(accelerator_type=3), TypeError, "pass a name"),
    (lambda: ScalingConfig(resources_per_worker={"cpu": 2}), ValueError, "unknown resource 'cpu'; did you mean 'CPU'"),
    (lambda: ScalingConfig(resources_per_worker={"num_gpus": 2}), ValueError, "did you mean 'GPU'"),
    (lambda: ScalingConfig(resources_per_worker={"CPU": math.inf}), ValueError, "no node has that"),
    (lambda: RunConfig(worker_runtime_env={"env_vars": None}), TypeError, "pass a dict of strings"),
    (lambda: RunConfig(worker_runtime_env={"env_vars": ["A=1"]}), TypeError, "pass a dict of strings"),
    (lambda: RunConfig(worker_runtime_env={"env_vars": {"A": None}}), TypeError, "pass a dict of strings"),
    (lambda: a_trainer({"train": [1]}, DataConfig(["trian"])), ValueError, "no dataset 'trian'; it has 'train'"),
    (lambda: FailureConfig(fail_fast="no"), ValueError, 'use True, False or "raise"'),
    (lambda: FailureConfig(max_failures=1, fail_fast=True), ValueError, "leave max_failures at 0"),
    (lambda: FailureConfig(hang_timeout_s=0), ValueError, "hang_timeout_s=0): must be greater than 0"),
    (lambda: FailureConfig(preemption_grace_s=float("nan")), ValueError, "preemption_grace_s=nan"),
    (lambda: FailureConfig(backoff_s=90), ValueError, "max_backoff_s=60.0): must be at least 90"),
    (lambda: CheckpointConfig(num_to_keep=0), ValueError, "num_to_keep=0): must be at least 1, or None"),
    (lambda: CheckpointConfig(checkpoint_score_order="least"), ValueError, 'use "max" or "min"'),
    (lambda: CheckpointConfig(checkpoint_score_attribute=3), TypeError, "name of a metric"),
    (lambda: CheckpointConfig(checkpoint_frequency=-1), ValueError, "checkpoint_frequency=-1"),
    (lambda: SyncConfig(sync_period=-1), ValueError, "sync_period=-1): must be at least 0"),
    (lambda: SyncConfig(sync_timeout=0), ValueError, "sync_timeout=0): must be greater than 0"),
    (lambda: LoggingConfig("LOUD"), ValueError, "log_level='LOUD'): use one of"),
    (lambda: DataConfig("train"), TypeError, "datasets_to_split='train'"),
    (lambda: RunConfig(name="a/b"), ValueError, "not a valid name"),
    (lambda: RunConfig(name=3), TypeError, "name=3): pass a str"),
    (lambda: RunConfig(storage_path="ftp://host/x"), ValueError, "ftp:// is not supported. Use a plain path"),
    (lambda: RunConfig(storage_path="file://host/x"), ValueError, "three slashes"),
    (lambda: RunConfig(storage_path=""), ValueError, "the path is empty"),
    (lambda: RunConfig(storage_path=7), TypeError, "storage_path=7): pass a str or a pathlib.Path"),
    (lambda: RunConfig(storage_filesystem=object()), TypeError, "pass a store of obstore"),
    (lambda: RunConfig(failure_config=3), TypeError, "pass a holdfast.train.FailureConfig"),
    (lambda: RunConfig(checkpoint_config=FailureConfig()), TypeError, "pass a holdfast.train.CheckpointConfig"),
    (lambda: RunConfig(callbacks=UserCallback()), TypeError, "pass a list"),
    (lambda: RunConfig(callbacks=[UserCallback]), TypeError, "pass instances"),
    (lambda: RunConfig(worker_runtime_env="x"), TypeError, "pass a dict"),
    (lambda: RunConfig(verbose=-1), ValueError, "verbose=-1"),
    (lambda: RunConfig(stop=10), TypeError, "stop=10): pass a dict"),
    (lambda: RunConfig(log_to_file=3), TypeError, "log_to_file=3"),
    (lambda: TorchConfig(init_method="file"), ValueError, 'use "env" or "tcp"'),
    (lambda: TorchConfig(timeout_s=0), ValueError, "timeout_s=0): must be greater than 0"),
    (lambda: TorchConfig(backend=""), TypeError, '"gloo" or "nccl"'),
]


@pytest.mark.parametrize(("make", "error", "words"), BAD, ids=[words for _, _, words in BAD])
def test_bad_input_is_refused_with_a_remedy(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        make()
    assert caught.type in ({TypeError, WrongTypeError} if error is TypeError else {error})


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"run": object()}, r"metadata\['run'\] is of type object, which cannot be sent to workers; pass strings"),
        ({"a": {"b": [1, {"c": print}]}}, r"metadata\['a'\]\['b'\]\[1\]\['c'\] is of type builtin_function_or_method"),
        ({"large": 1 << 70}, rf"metadata\['large'\] is {1 << 70}"),
        ({"name": "\ud800"}, r"metadata\['name'\] is '\\ud800'"),
        ({3: "three"}, r"its key 3 is not a str"),
        (LOOP, r"metadata is of type dict"),
    ],
)
def test_metadata_that_cannot_be_sent_is_refused_when_the_trainer_is_made(metadata: Any, words: str) -> None:
    with pytest.raises(TypeError, match=rf"^DataParallelTrainer\(metadata=…\): {words}.*train_loop_config$"):
        DataParallelTrainer(report_once, metadata=metadata)


def test_metadata_that_can_be_sent() -> None:
    for value in (None, 1.5, "a", b"a", [1, {"b": None}], (1, 2), {1: 2}, math.nan):
        DataParallelTrainer(report_once, metadata={"a": value})


def test_num_workers_is_a_number_a_range_or_zero() -> None:
    assert (ScalingConfig(num_workers=3).min_workers, ScalingConfig(num_workers=3).max_workers) == (3, 3)
    elastic = ScalingConfig(num_workers=(1, 8))
    assert elastic.elasticity_enabled
    assert (elastic.min_workers, elastic.max_workers) == (1, 8)
    assert ScalingConfig(num_workers=[1, 8]) == elastic  # type: ignore[arg-type]  # as it comes back from JSON
    assert ScalingConfig(num_workers=0).max_workers == 0
    assert not ScalingConfig(num_workers=0).elasticity_enabled


def test_resources_of_a_worker() -> None:
    assert ScalingConfig(num_workers=2).worker_resources == {"CPU": 1}
    assert ScalingConfig(num_workers=2, use_gpu=True).worker_resources == {"GPU": 1}
    asked = ScalingConfig(num_workers=(1, 2), use_gpu=True, resources_per_worker={"CPU": 4, "memory": 1e9, "x": 0})
    assert asked.worker_resources == {"CPU": 4, "memory": 1e9, "GPU": 1}
    assert asked.additional_resources_per_worker == {"memory": 1e9}
    assert (asked.num_cpus_per_worker, asked.num_gpus_per_worker) == (4, 1)
    assert asked.total_resources == {"CPU": 8, "memory": 2e9, "GPU": 2}
    typed = ScalingConfig(num_workers=2, use_gpu=True, accelerator_type="A100")
    assert typed.worker_resources == {"GPU": 1}
    assert typed.additional_resources_per_worker == {"accelerator_type:A100": 0.001}
    assert typed.total_resources == {"GPU": 2, "accelerator_type:A100": 0.002}


def test_run_config_defaults_come_from_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_STORAGE_PATH", raising=False)
    assert RunConfig().storage_path == str(tmp_path / "holdfast_results")
    monkeypatch.setenv("HOLDFAST_STORAGE_PATH", str(tmp_path / "elsewhere"))
    assert RunConfig().storage_path == str(tmp_path / "elsewhere")


def test_run_config_takes_paths_and_local_urls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    expected = str(tmp_path / "my runs")
    assert RunConfig(storage_path=tmp_path / "my runs").storage_path == expected
    assert RunConfig(storage_path="my runs/").storage_path == expected
    assert RunConfig(storage_path=(tmp_path / "my runs").as_uri()).storage_path == expected
    assert RunConfig(name="x", storage_path=expected).location.path == Path(expected, "x")


def test_names_are_unique_by_default() -> None:
    names = {RunConfig().name for _ in range(50)}
    assert len(names) == 50
    assert all(re.fullmatch(r"train_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{6}", name) for name in names)


def test_none_means_the_default() -> None:
    config = RunConfig(
        name=None,  # type: ignore[arg-type]
        storage_path=None,  # type: ignore[arg-type]
        failure_config=None,  # type: ignore[arg-type]
        checkpoint_config=None,  # type: ignore[arg-type]
        callbacks=None,  # type: ignore[arg-type]
        sync_config=None,  # type: ignore[arg-type]
        worker_runtime_env=None,  # type: ignore[arg-type]
        logging_config=None,  # type: ignore[arg-type]
        preload=None,  # type: ignore[arg-type]
    )
    assert config.name
    assert config.failure_config == FailureConfig()
    assert config.checkpoint_config == CheckpointConfig()
    assert config.sync_config == SyncConfig()
    assert config.logging_config == LoggingConfig()
    assert (config.callbacks, config.worker_runtime_env, config.preload) == ([], {}, ())


def test_older_options_are_accepted_and_only_the_useless_ones_warn_once() -> None:
    scaling = ScalingConfig(trainer_resources={"CPU": 1})
    run = RunConfig(
        sync_config=SyncConfig(60, sync_timeout=5, sync_artifacts=True, sync_artifacts_on_checkpoint=False),
        verbose=2,
        stop={"epoch": 3},
        progress_reporter=object(),
        callbacks=[Callback()],  # type: ignore[list-item]
        log_to_file=("out", "err"),
        checkpoint_config=CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
        failure_config=FailureConfig(fail_fast=True, controller_failure_limit=2, relax_collectives_on_preemption=True),
    )
    with pytest.warns(UserWarning, match="has no effect on a train function") as seen:
        warn_unused_in_training(scaling, run)
    named = {str(warning.message).split(" has no effect")[0] for warning in seen}
    assert named == {
        "ScalingConfig(trainer_resources)",
        "RunConfig(stop)",
        "RunConfig(progress_reporter)",
        "RunConfig(callbacks=[Callback])",
        "RunConfig(log_to_file)",
        "CheckpointConfig(checkpoint_frequency)",
        "CheckpointConfig(checkpoint_at_end)",
        "SyncConfig(sync_timeout)",
        "SyncConfig(sync_artifacts)",
        "SyncConfig(sync_artifacts_on_checkpoint)",
        "FailureConfig(fail_fast)",
        "FailureConfig(controller_failure_limit)",
        "FailureConfig(relax_collectives_on_preemption)",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unused_in_training(scaling, run)


@pytest.mark.parametrize("by_setting", [False, True])
@pytest.mark.parametrize("asked", [{"use_tpu": True}, {"topology": "2x2"}], ids=["use_tpu", "topology"])
def test_tpus_are_refused_on_ray(
    asked: dict[str, Any], by_setting: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are in vain on one machine; there, a run would wait for them for ever."""
    monkeypatch.setenv("HOLDFAST_ENGINE", "ray" if by_setting else "local")
    monkeypatch.setattr("holdfast.train.trainer.choose", lambda *_: pytest.fail("the run continues"))
    run = RunConfig("run", tmp_path, engine=None if by_setting else "ray", verbose=0)
    trainer = DataParallelTrainer(report_once, scaling_config=ScalingConfig(**asked), run_config=run)
    (option,) = asked
    with pytest.raises(ValueError, match=rf"{option}=.*engine=\"ray\"; leave {option} out"):
        trainer.fit()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("asked", [{"use_tpu": True}, {"topology": "2x2"}], ids=["use_tpu", "topology"])
@pytest.mark.parametrize(("engine", "workers"), [("local", 1), ("ray", 0)])
def test_tpus_are_not_refused_where_nothing_is_asked_of_ray(asked: dict[str, Any], engine: str, workers: int) -> None:
    demand_of(ScalingConfig(num_workers=workers, **asked), RunConfig(engine=engine))


def test_plain_configs_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unused_in_training(ScalingConfig(num_workers=2), RunConfig(log_to_file=True, verbose=1))


def test_labels_that_ray_takes_are_taken() -> None:
    for value in ("a", "", "!spot", "in(H100, A100)", "!in(a,b)", "x" * 63):
        ScalingConfig(label_selector={"ray.io/market-type": value, "zone_1": value})


def test_a_log_level_is_in_force_while_a_run_is_driven(tmp_path: Path) -> None:
    logger = logging.getLogger("holdfast")
    levels = []

    class Watching(UserCallback):
        def after_report(self, *_: object) -> None:
            levels.append(logger.getEffectiveLevel())

    run = RunConfig("run", tmp_path, callbacks=[Watching()], logging_config=LoggingConfig("DEBUG"), verbose=0)
    before = logger.level
    DataParallelTrainer(report_once, scaling_config=ScalingConfig(num_workers=0), run_config=run).fit()
    assert levels == [logging.DEBUG]
    assert logger.level == before


def test_log_level_in_any_case() -> None:
    assert LoggingConfig("debug").log_level == "DEBUG"
    assert LoggingConfig("debug").level == 10


def test_fail_fast_may_raise() -> None:
    assert FailureConfig(fail_fast="raise").fail_fast == "raise"


def test_configs_are_picklable() -> None:
    run = RunConfig(name="x", failure_config=FailureConfig(max_failures=3), callbacks=[UserCallback()])
    again = pickle.loads(pickle.dumps(run))
    assert again.failure_config == run.failure_config
    assert again.location == run.location
    for config in (ScalingConfig(num_workers=(1, 2)), SyncConfig(), LoggingConfig(), TorchConfig("gloo")):
        assert pickle.loads(pickle.dumps(config)) == config


def test_the_base_backend_leaves_the_function_alone() -> None:
    def train() -> None: ...

    assert BackendConfig().wrap(train) is train
    assert BackendConfig().essential == BackendConfig().preload == ()


def test_data_config_marks_what_is_not_split() -> None:
    datasets = {"train": [1, 2], "valid": [3]}
    assert DataConfig().mark(datasets) == datasets
    marked = DataConfig(["train"]).mark(datasets)
    assert marked["train"] == [1, 2]
    assert isinstance(marked["valid"], Whole)
    assert marked["valid"].data == [3]
