"""Every test file of Ray's for Train V2 and Tune in the index that was within reach, and what became of its cases.

The files are those of ``python/ray/train/v2/tests`` (96) and ``python/ray/tune/tests``. Of the latter the index counts
134 and lists 100; others were found by the names in Ray's build files, and are below too. Each file is one of:

* cases: in the tables ``ray_train_cases`` and ``ray_tune_cases``; ``where`` says what is not in them, and why
* internal: it tests or helps to test what is inside of Ray, by names that begin with an underscore or are not exported
* hardware: it needs GPUs or TPUs
* elsewhere: its cases belong to frameworks, data or trackers, and ``where`` names a test of ours for the same calls
* newer: what it tests is not in Ray 2.60
* older: what it tests was removed before Ray 2.60
* differs: a row of the moving guide

``python -m support.compat.ray_ledger`` counts them; with ``--tests`` it prints the tests that stand for cases.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

from support.compat import ray_case, ray_train_cases, ray_tune_cases

CASES, INTERNAL, HARDWARE, ELSEWHERE = "cases", "internal", "hardware", "elsewhere"
NEWER, OLDER, DIFFERS = "newer", "older", "differs"
KINDS = (CASES, INTERNAL, HARDWARE, ELSEWHERE, NEWER, OLDER, DIFFERS)


class File(NamedTuple):
    kind: str
    where: str = ""


def _each(kind: str, where: str, *names: str) -> dict[str, File]:
    return {name: File(kind, where) for name in names}


_FRAMEWORKS = "system/frameworks/"
TRAIN: dict[str, File] = {
    **_each(CASES, "", "test_collective", "test_env_callbacks"),
    "test_report_fault_tolerance": File(CASES, "there with one rank that is replaced, here with a group that restarts"),
    **_each(INTERNAL, "helps the tests", "conftest", "util", "preemption_integration_demo"),
    **_each(
        INTERNAL,
        "calls the controller, the worker group, their policies, callbacks, queues and actors, or Ray's dashboard",
        "test_accelerator_utils",
        "test_autoscaling_coordinator_client",
        "test_callback_manager",
        "test_checkpoint_handler",
        "test_circular_import_linter",
        "test_circular_imports",
        "test_context",
        "test_controller",
        "test_controller_callback_behaviour",
        "test_data_resource_cleanup",
        "test_dataset_manager",
        "test_elastic_scaling_policy",
        "test_failure_policy",
        "test_local_running_utils",
        "test_local_testing_context",
        "test_logging",
        "test_metrics",
        "test_pg_cleaner",
        "test_pg_cleaner_callback",
        "test_placement_group_cleaner",
        "test_placement_group_handle",
        "test_preemption_unit",
        "test_preemption_watcher",
        "test_report_handler",
        "test_scheduling",
        "test_state",
        "test_state_export",
        "test_sync_actor",
        "test_telemetry",
        "test_thread_runner",
        "test_util",
        "test_worker",
        "test_worker_group",
        "test_worker_group_poll_status",
        "test_worker_group_v2",
    ),
    **_each(HARDWARE, "GPUs", "test_jax_gpu", "test_torch_gpu", "test_nccl_ras_hang_detection"),
    **_each(HARDWARE, "TPUs", "test_jax_elastic_e2e", "test_tpu_utils"),
    **_each(
        NEWER,
        "ray.train's health checks",
        "data/health/ncclras_a10g_mismatch.json",
        "test_health",
        "test_health_callback",
        "test_health_collective_join",
        "test_health_contracts",
        "test_health_controller",
        "test_health_diagnose_flow",
        "test_health_diagnostics",
        "test_health_fault_discrimination",
        "test_health_fault_injection",
        "test_health_manager",
        "test_health_nccl_ras_port",
        "test_health_node_exclusion",
        "test_health_node_monitor",
        "test_health_real_captures",
        "test_health_udf_signals",
    ),
    **_each(
        NEWER, "a detector of hangs from NVIDIA", "test_nv_hang_detector_callback", "test_nv_hang_detector_detection"
    ),
    "test_train_annotations": File(NEWER, "ray.train.annotate"),
    "test_user_callback": File(NEWER, "UserCallback.before_run and after_run"),
    "test_mlflow_callback": File(NEWER, "ray.train.v2.api.mlflow"),
    "test_dataset_checkpointing": File(NEWER, "checkpoints of datasets"),
    "test_data_config": File(INTERNAL, "asks a DataConfig for its private options; its names: unit/train"),
    "test_async_checkpointing": File(OLDER, "an earlier test_async_checkpointing_validation"),
    "test_collectives": File(OLDER, "an earlier test_collective"),
    "test_trainer": File(OLDER, "trainers as they were in 2022"),
    "test_nccl_ras_callback": File(DIFFERS, "a hung worker"),
    "test_data_integration": File(ELSEWHERE, "system/data/test_guide_calls.py"),
    "test_data_integration_replica_replacement": File(NEWER, "groups of replicas that are replaced one by one"),
    "test_jax_trainer": File(ELSEWHERE, _FRAMEWORKS + "test_jax.py"),
    "test_lightgbm_trainer": File(ELSEWHERE, _FRAMEWORKS + "test_lightgbm.py"),
    "test_lightning_integration": File(ELSEWHERE, _FRAMEWORKS + "test_lightning.py"),
    "test_tensorflow_trainer": File(ELSEWHERE, _FRAMEWORKS + "test_tensorflow.py"),
    "test_torch_transformers_train": File(ELSEWHERE, _FRAMEWORKS + "test_transformers.py"),
    "test_xgboost_trainer": File(ELSEWHERE, _FRAMEWORKS + "test_xgboost.py"),
    "test_async_checkpointing_validation": File(CASES),
    "test_checkpoint_manager": File(CASES, "the others call Ray's manager of checkpoints itself"),
    "test_config": File(CASES, "two are about TPUs"),
    "test_data_parallel_trainer": File(CASES),
    "test_elastic_e2e": File(CASES, "one is about TPUs"),
    "test_local_mode": File(
        CASES, "the others are of frameworks, which system/frameworks runs in workers, and of TPUs"
    ),
    "test_persistence": File(CASES),
    "test_preemption_fault_tolerance": File(CASES),
    "test_result": File(CASES),
    "test_serialization": File(CASES, "the others use callbacks inside of Ray"),
    "test_storage": File(CASES, "the others call Ray's StorageContext by private names"),
    "test_torch_backend": File(CASES),
    "test_torch_trainer": File(CASES, "test_torch_linear is run by `make examples`"),
    "test_v2_api": File(CASES, "the others are about Train V1 and frameworks"),
    "test_validation_manager": File(CASES, "the others call Ray's manager of validations itself"),
}

TUNE: dict[str, File] = {
    **_each(INTERNAL, "helps the tests", "conftest", "execution/utils", "mock", "output/conftest"),
    **_each(
        INTERNAL,
        "calls Ray's controller of trials, its syncer, its caches, Ray Core, or its telemetry",
        "_test_multi_tenancy_run",
        "execution/test_actor_caching",
        "execution/test_controller_callback_integration",
        "execution/test_controller_checkpointing_integration",
        "execution/test_controller_control_integration",
        "execution/test_controller_errors_integration",
        "execution/test_controller_resources_integration",
        "execution/test_controller_resume_integration",
        "execution/test_controller_search_alg_integration",
        "output/test_output",
        "release_test_util",
        "repro_memory_leak",
        "test_checkpoint_manager",
        "test_commands",
        "test_dependency",
        "test_logger_memory_leak",
        "test_multi_tenancy",
        "test_placeholder",
        "test_ray_trial_executor",
        "test_resource_updater",
        "test_soft_imports",
        "test_syncer",
        "test_task_events",
        "test_telemetry",
        "test_util_file_transfer",
        "test_util_object_cache",
        "test_utils",
        "test_warnings",
    ),
    **_each(
        OLDER,
        "it is not in the newest build file of Ray Tune",
        "_test_air_experiment_restore_run",
        "_test_cluster_interrupt",
        "_test_cluster_interrupt_searcher",
        "_test_trial_runner_3",
        "_test_trial_runner_callbacks",
        "_test_trial_runner_pg",
        "_test_tuner_restore",
        "experiment_checkpoint (8 files)",
        "ext_pytorch",
        "test_additional_epochs",
        "test_analysis",
        "test_automl_searcher",
        "test_checkpoint_policy",
        "test_client",
        "test_cloud",
        "test_cluster_searcher",
        "test_convergence_gaussian_process",
        "test_examples",
        "test_experiment_analysis_mem",
        "test_function_api_legacy",
        "test_horovod",
        "test_horovod_client",
        "test_import_legacy_structure",
        "test_integration_docker",
        "test_integration_kubernetes",
        "test_legacy_import",
        "test_logger_wandb",
        "test_median_stopping_result",
        "test_multinode_sync",
        "test_new_persistence",
        "test_relative_local_dir",
        "test_reporter_no_usage",
        "test_serial",
        "test_shim",
        "test_sync",
        "test_sync_file_transfer",
        "test_syncer_callback",
        "test_tensorflow_trainable",
        "test_tf_saver",
        "test_torch_trainable",
        "test_track",
        "test_trial_executor_inheritance",
        "test_trial_relative_logdir",
        "test_trial_runner",
        "test_trial_runner_2",
        "test_trial_runner_3",
        "test_trial_runner_callbacks",
        "test_trial_runner_pg",
        "test_tune_server",
    ),
    "example": File(ELSEWHERE, "system/ray_examples/test_ray_examples.py"),
    "tutorial": File(ELSEWHERE, "system/ray_examples/test_ray_examples.py"),
    "test_cluster": File(ELSEWHERE, "system/ray/test_tune_on_ray.py"),
    "test_convergence": File(ELSEWHERE, "system/searchers/test_searchers.py"),
    "test_integration_comet": File(ELSEWHERE, "system/extras/test_logger_packages.py"),
    "test_integration_mlflow": File(ELSEWHERE, "system/extras/test_logger_packages.py"),
    "test_integration_pytorch_lightning": File(ELSEWHERE, _FRAMEWORKS + "test_tune_callbacks.py"),
    "test_integration_wandb": File(ELSEWHERE, "system/extras/test_logger_packages.py"),
    "test_actor_reuse": File(CASES, "the others are about mixins and the syncer of older versions"),
    "test_api": File(CASES, "the others call Ray's internals, or need GPUs"),
    "test_api_checkpoint_integration": File(CASES),
    "test_api_migrations": File(DIFFERS, "Tune: `ray.train` in trials and searches"),
    "test_callbacks": File(CASES, "one is about names of files inside of CallbackList"),
    "test_env_callbacks": File(ELSEWHERE, "system/compat/test_train_cases.py::test_callbacks_of_a_variable"),
    "test_experiment": File(CASES, "the others call Ray's internals"),
    "test_experiment_analysis": File(CASES, "the others call Ray's internals"),
    "test_function_api": File(CASES, "the others call Ray's internals"),
    "test_logger": File(CASES, "the others are about loggers of older versions, and Aim"),
    "test_progress_reporter": File(CASES, "the others call Ray's internals, or compare whole outputs"),
    "test_remote": File(INTERNAL, "runs a search in a task of Ray Core, by a private argument"),
    "test_result_grid": File(CASES, "the others call Ray's internals"),
    "test_run_experiment": File(CASES, "the others call Ray's internals"),
    "test_sample": File(CASES, "the others are about searchers on other libraries: system/searchers"),
    "test_searcher_utils": File(CASES),
    "test_searchers": File(CASES, "the others are about searchers on other libraries: system/searchers"),
    "test_stopper": File(CASES),
    "test_train_v2_integration": File(CASES),
    "test_trainable": File(CASES, "the others are about checkpoints as objects, and the syncer of older versions"),
    "test_trainable_util": File(CASES, "one finds directories by a private name"),
    "test_trial": File(CASES, "the others make trials by hand"),
    "test_trial_scheduler": File(CASES, "the others call Ray's internals"),
    "test_trial_scheduler_pbt": File(CASES, "the others call private methods, or measure Ray's object store"),
    "test_trial_scheduler_resource_changing": File(CASES, "the others call Ray's internals"),
    "test_tune_restore": File(CASES, "the others are of RLlib, Keras and downloads, or set limits of gRPC"),
    "test_tune_restore_warm_start": File(CASES, "the others need libraries that Ray 2.60 no longer supports, or HEBO"),
    "test_tune_save_restore": File(CASES, "the others are about relative paths of older versions"),
    "test_tuner": File(CASES, "the others call Ray's internals, or need frameworks"),
    "test_tuner_restore": File(CASES, "the others call Ray's internals"),
    "test_var": File(CASES, "the others call Ray's internals"),
}

TABLES = (ray_train_cases.CASES, ray_tune_cases.CASES)


def tests() -> list[str]:
    """The tests that stand for cases, as pytest takes them; without those that need the libraries of searchers."""
    named = {case.test for table in TABLES for cases in table.values() for case in cases.values()}
    return sorted(f"tests/{test}" for test in named if not test.startswith("system/searchers/"))


if __name__ == "__main__":
    if "--tests" in sys.argv:
        print(*tests(), sep="\n")
    else:
        for name, files, table in zip(("Train", "Tune"), (TRAIN, TUNE), TABLES, strict=True):
            print(name, len(files), "files", dict(Counter(file.kind for file in files.values())))
            print(
                name, len(table), "files", sum(ray_case.counts(table).values()), "cases", dict(ray_case.counts(table))
            )
