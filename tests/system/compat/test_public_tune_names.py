"""The public names of ``holdfast.tune``, frozen as those of ``holdfast.train`` are; see test_public_names."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from test_public_names import TRAIN, _is_member, described

import holdfast.tune

TUNE = {
    "CLIReporter": "(*, metric_columns=None, parameter_columns=None, total_samples=None, max_progress_rows=20, "
    "max_error_rows=20, max_column_length=20, max_report_frequency=5, infer_limit=3, print_intermediate_tables=None, "
    "metric=None, mode=None, sort_by_metric=False, clock=..., out=None)",
    "Callback": "()",
    "Experiment": "(name, run, *, stop=None, time_budget_s=None, config=None, resources_per_trial=None, num_samples=1, "
    "storage_path=None, storage_filesystem=None, sync_config=None, checkpoint_config=None, trial_name_creator=None, "
    "trial_dirname_creator=None, log_to_file=False, export_formats=None, max_failures=0, restore=None, local_dir=None)",
    "ExperimentAnalysis": "(experiment_checkpoint_path, *, storage_filesystem=None, trials=None, default_metric=None, "
    "default_mode=None)",
    "JupyterNotebookReporter": "(overwrite=True, **kwargs)",
    "PlacementGroupFactory": "(bundles, strategy='PACK', **options)",
    "ProgressReporter": "()",
    "ResultGrid": "(results, *, experiment_path='', metric=None, mode=None, statuses=None, reports=None, "
    "filesystem=None)",
    "ResumeConfig": "(finished=SKIP, unfinished=RESUME, errored=SKIP)",
    "Stopper": "()",
    "Trainable": "(config=None, storage=None)",
    "TuneConfig": "(mode=None, metric=None, search_alg=None, scheduler=None, num_samples=1, "
    "max_concurrent_trials=None, time_budget_s=None, reuse_actors=False, trial_name_creator=None, "
    "trial_dirname_creator=None, chdir_to_trial_dir=True)",
    "TuneContext": "(session)",
    "TuneError": "error",
    "Tuner": "(trainable=None, *, param_space=None, tune_config=None, run_config=None)",
    "choice": "(categories)",
    "create_scheduler": "(scheduler, **kwargs)",
    "create_searcher": "(search_alg, **kwargs)",
    "grid_search": "(values)",
    "lograndint": "(lower, upper, base=...)",
    "loguniform": "(lower, upper, base=...)",
    "qlograndint": "(lower, upper, q, base=...)",
    "qloguniform": "(lower, upper, q, base=...)",
    "qrandint": "(lower, upper, q=1)",
    "qrandn": "(mean, sd, q)",
    "quniform": "(lower, upper, q)",
    "randint": "(lower, upper)",
    "randn": "(mean=0.0, sd=1.0)",
    "register_env": "(name, env_creator)",
    "register_trainable": "(name, trainable, warn=True)",
    "run": "(run_or_experiment, *, name=None, metric=None, mode=None, stop=None, time_budget_s=None, config=None, "
    "resources_per_trial=None, num_samples=1, storage_path=None, storage_filesystem=None, search_alg=None, "
    "scheduler=None, checkpoint_config=None, verbose=None, progress_reporter=None, log_to_file=False, "
    "trial_name_creator=None, trial_dirname_creator=None, sync_config=None, export_formats=None, max_failures=0, "
    "fail_fast=False, restore=None, resume=None, resume_config=None, reuse_actors=False, raise_on_failed_trial=True, "
    "callbacks=None, max_concurrent_trials=None, keep_checkpoints_num=None, checkpoint_score_attr=None, "
    "checkpoint_freq=0, checkpoint_at_end=False, chdir_to_trial_dir=None, local_dir=None)",
    "run_experiments": "(experiments, scheduler=None, verbose=None, progress_reporter=None, resume=None, "
    "resume_config=None, reuse_actors=False, raise_on_failed_trial=True, concurrent=True, callbacks=None)",
    "sample_from": "(func)",
    "uniform": "(lower, upper)",
    "with_parameters": "(trainable, **kwargs)",
    "with_resources": "(trainable, resources)",
}

SCHEDULERS = {
    "ASHAScheduler": "(time_attr='training_iteration', metric=None, mode=None, max_t=100, grace_period=1, "
    "reduction_factor=4, brackets=1, stop_last_trials=True, *, seed=None)",
    "AsyncHyperBandScheduler": "(time_attr='training_iteration', metric=None, mode=None, max_t=100, grace_period=1, "
    "reduction_factor=4, brackets=1, stop_last_trials=True, *, seed=None)",
    "Decision": "(action, reason='', requests=())",
    "ExperimentView": "(*args, **kwargs)",
    "Exploit": "(trial_id, donor_id, checkpoint, config, donor_config, step, donor_step, operations=...)",
    "FIFOScheduler": "()",
    "HyperBandForBOHB": "(time_attr='training_iteration', metric=None, mode=None, max_t=81, reduction_factor=3, "
    "stop_last_trials=True)",
    "HyperBandScheduler": "(time_attr='training_iteration', metric=None, mode=None, max_t=81, reduction_factor=3, "
    "stop_last_trials=True)",
    "MedianStoppingRule": "(time_attr='time_total_s', metric=None, mode=None, grace_period=60.0, "
    "min_samples_required=3, min_time_slice=0, hard_stop=True)",
    "PB2": "(time_attr='time_total_s', metric=None, mode=None, perturbation_interval=60.0, hyperparam_bounds=None, "
    "quantile_fraction=0.25, log_config=True, require_attrs=True, synch=False, custom_explore_fn=None, *, seed=None)",
    "PopulationBasedTraining": "(time_attr='time_total_s', metric=None, mode=None, perturbation_interval=60.0, "
    "burn_in_period=0.0, hyperparam_mutations=None, quantile_fraction=0.25, resample_probability=0.25, "
    "perturbation_factors=(1.2, 0.8), custom_explore_fn=None, log_config=True, require_attrs=True, synch=False, *, "
    "seed=None)",
    "PopulationBasedTrainingReplay": "(policy_file)",
    "Request": "(trial_id)",
    "Resize": "(trial_id, resources)",
    "ResourceChangingScheduler": "(base_scheduler=None, resources_allocation_function=...)",
    "Save": "(trial_id)",
    "SetConfig": "(trial_id, config)",
    "StopTrial": "(trial_id, reason)",
    "TrialScheduler": "()",
    "TrialView": "(*args, **kwargs)",
    "create_scheduler": "(scheduler, **kwargs)",
    "policy_rows": "(exploits, trial_id)",
}

SEARCH = {
    "BasicVariantGenerator": "(points_to_evaluate=None, max_concurrent=0, constant_grid_search=False, "
    "random_state=None)",
    "ConcurrencyLimiter": "(searcher, max_concurrent, batch=False)",
    "Repeater": "(searcher, repeat=1, set_index=True)",
    "Searcher": "(metric=None, mode=None)",
    "create_searcher": "(search_alg, **kwargs)",
    "grid_search": "(values)",
}

LOGGER = {
    "CSVLoggerCallback": "()",
    "JsonLoggerCallback": "()",
    "LoggerCallback": "()",
    "TBXLoggerCallback": "(*, clock=...)",
    "default_loggers": "()",
}

STOPPER = {
    "CombinedStopper": "(*stoppers)",
    "ExperimentPlateauStopper": "(metric, std=0.001, top=10, mode='min', patience=0)",
    "FunctionStopper": "(function)",
    "MaximumIterationStopper": "(max_iter)",
    "NoopStopper": "()",
    "Stopper": "()",
    "TimeoutStopper": "(timeout, *, clock=...)",
    "TrialPlateauStopper": "(metric, std=0.01, num_results=4, grace_period=4, metric_threshold=None, mode=None)",
}

ELSEWHERE = {
    "holdfast.errors:ObjectLostError": "error",
    "holdfast.objects:get": "(object_refs, *, timeout=None)",
    "holdfast.objects:put": "(value)",
    "holdfast.tune.integration.ray_train:TuneReportCallback": "()",
    "holdfast.tune.logger.mlflow:MLflowLoggerCallback": "(tracking_uri=None, *, registry_uri=None, "
    "experiment_name=None, tags=None, tracking_token=None, save_artifact=False, log_params_on_trial_end=False)",
    "holdfast.tune.logger.wandb:WandbLoggerCallback": "(project=None, group=None, api_key_file=None, api_key=None, "
    "excludes=None, log_config=False, upload_checkpoints=False, save_checkpoints=False, upload_timeout=None, "
    "video_kwargs=None, image_kwargs=None, **kwargs)",
    "holdfast.air.integrations.mlflow:setup_mlflow": "(config=None, tracking_uri=None, registry_uri=None, "
    "experiment_id=None, experiment_name=None, tracking_token=None, artifact_location=None, run_name=None, "
    "create_experiment_if_not_exists=False, tags=None, rank_zero_only=True)",
    "holdfast.air.integrations.wandb:setup_wandb": "(config=None, api_key=None, api_key_file=None, "
    "rank_zero_only=True, **kwargs)",
    "holdfast.tune.logger.aim:AimLoggerCallback": "(repo=None, experiment_name=None, metrics=None, **aim_run_kwargs)",
    "holdfast.tune.logger.comet:CometLoggerCallback": "(online=True, tags=None, save_checkpoints=False, "
    "**experiment_kwargs)",
    "holdfast.tune.search.ax:AxSearch": "(space=None, metric=None, mode=None, points_to_evaluate=None, "
    "parameter_constraints=None, outcome_constraints=None, ax_client=None, **ax_kwargs)",
    "holdfast.tune.search.bayesopt:BayesOptSearch": "(space=None, metric=None, mode=None, points_to_evaluate=None, "
    "utility_kwargs=None, random_state=42, random_search_steps=10, verbose=0, patience=5, skip_duplicate=True, "
    "analysis=None, repeat_float_precision=5)",
    "holdfast.tune.search.bohb:TuneBOHB": "(space=None, bohb_config=None, metric=None, mode=None, "
    "points_to_evaluate=None, seed=None, max_concurrent=0)",
    "holdfast.tune.search.hyperopt:HyperOptSearch": "(space=None, metric=None, mode=None, points_to_evaluate=None, "
    "n_initial_points=20, random_state_seed=None, gamma=0.25)",
    "holdfast.tune.search.nevergrad:NevergradSearch": "(optimizer=None, optimizer_kwargs=None, space=None, "
    "metric=None, mode=None, points_to_evaluate=None, *, seed=None)",
    "holdfast.tune.search.zoopt:ZOOptSearch": "(algo='asracos', budget=None, dim_dict=None, metric=None, mode=None, "
    "points_to_evaluate=None, parallel_num=1, *, seed=None, **kwargs)",
    "holdfast.tune.search.optuna:OptunaSearch": "(space=None, metric=None, mode=None, points_to_evaluate=None, "
    "sampler=None, study_name=None, storage=None, seed=None, evaluated_rewards=None)",
}

FROM_TRAIN = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "SyncConfig",
    "get_checkpoint",
    "get_context",
    "report",
]

MEMBERS = {
    "Callback": {
        "get_state": "()",
        "on_checkpoint": "(iteration, trials, trial, checkpoint, **info)",
        "on_experiment_end": "(trials, **info)",
        "on_step_begin": "(iteration, trials, **info)",
        "on_step_end": "(iteration, trials, **info)",
        "on_trial_complete": "(iteration, trials, trial, **info)",
        "on_trial_error": "(iteration, trials, trial, **info)",
        "on_trial_recover": "(iteration, trials, trial, **info)",
        "on_trial_restore": "(iteration, trials, trial, **info)",
        "on_trial_result": "(iteration, trials, trial, result, **info)",
        "on_trial_save": "(iteration, trials, trial, **info)",
        "on_trial_start": "(iteration, trials, trial, **info)",
        "set_state": "(state)",
        "setup": "(stop=None, num_samples=None, total_num_samples=None, **info)",
    },
    "CLIReporter": {
        "add_metric_column": "(metric, representation=None)",
        "add_parameter_column": "(parameter, representation=None)",
        "report": "(trials, done, *sys_info)",
        "setup": "(start_time=None, total_samples=None, metric=None, mode=None, **kwargs)",
        "should_report": "(trials, done=False)",
        "text": "(rows, done, *sys_info, *, width=10000)",
    },
    "PlacementGroupFactory": {
        "bundles": "property",
        "head_bundle": "property",
        "head_bundle_is_empty": "property",
        "head_cpus": "property",
        "options": "property",
        "required_resources": "property",
        "strategy": "property",
    },
    "ProgressReporter": {
        "report": "(trials, done, *sys_info)",
        "setup": "(start_time=None, total_samples=None, metric=None, mode=None, **kwargs)",
        "should_report": "(trials, done=False)",
    },
    "ResultGrid": {
        "errors": "property",
        "experiment_path": "property",
        "filesystem": "property",
        "get_best_result": "(metric=None, mode=None, scope='last', filter_nan_and_inf=True)",
        "get_dataframe": "(filter_metric=None, filter_mode=None)",
        "num_errors": "property",
        "num_terminated": "property",
    },
    "Stopper": {
        "stop_all": "()",
        "next_decision": "(trial_id, iteration)",
        "use_clock": "(clock)",
    },
    "Trainable": {
        "cleanup": "()",
        "default_resource_request": "(config)",
        "export_model": "(export_formats, export_dir=None)",
        "get_auto_filled_metrics": "(now=None, time_this_iter=None, timestamp=None, debug_metrics_only=False)",
        "get_config": "()",
        "get_current_ip_pid": "()",
        "get_state": "()",
        "is_actor": "()",
        "iteration": "property",
        "load_checkpoint": "(checkpoint)",
        "log_result": "(result)",
        "logdir": "property",
        "reset": "(new_config, storage=None)",
        "reset_config": "(new_config)",
        "resource_help": "(config)",
        "restore": "(checkpoint_path)",
        "save": "(checkpoint_dir=None)",
        "save_checkpoint": "(checkpoint_dir)",
        "setup": "(config)",
        "step": "()",
        "stop": "()",
        "train": "()",
        "train_buffered": "(buffer_time_s, max_buffer_length=1000)",
        "training_iteration": "property",
        "trial_id": "property",
        "trial_name": "property",
        "trial_resources": "property",
    },
    "Tuner": {
        "can_restore": "(path, storage_filesystem=None)",
        "fit": "()",
        "get_results": "()",
        "restore": "(path, trainable=None, resume_unfinished=True, resume_errored=False, restart_errored=False, "
        "param_space=None, storage_filesystem=None, *, tune_config=None, run_config=None, _resume_config=None)",
    },
}


def told(thing: Any) -> str:
    """A default that is an object shows as ``...``."""
    return re.sub(r"=<[^>]*>", "=...", described(thing))


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("tune", {**TUNE, **{name: TRAIN[name] for name in FROM_TRAIN}}),
        ("tune.schedulers", SCHEDULERS),
        ("tune.search", SEARCH),
        ("tune.logger", LOGGER),
    ],
)
def test_names_and_signatures(module: str, names: dict[str, str]) -> None:
    found = importlib.import_module(f"holdfast.{module}")
    assert sorted(found.__all__) == sorted(names)
    assert {name: told(getattr(found, name)) for name in names} == names


def test_stoppers() -> None:
    found = importlib.import_module("holdfast.tune.stopper")
    assert {name: told(getattr(found, name)) for name in STOPPER} == STOPPER


@pytest.mark.parametrize("place", ELSEWHERE)
def test_names_that_have_modules_of_their_own(place: str) -> None:
    module, name = place.split(":")
    assert told(getattr(importlib.import_module(module), name)) == ELSEWHERE[place]


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name: str) -> None:
    kind = getattr(holdfast.tune, name)
    public = {member for member, value in vars(kind).items() if not member.startswith("_") and _is_member(value)}
    assert {member: told(getattr(kind, member)) for member in public} == MEMBERS[name]


def test_what_is_made_by_name() -> None:
    assert type(holdfast.tune.create_scheduler("async_hyperband", max_t=3, unknown=1)).__name__.endswith("Scheduler")
    assert type(holdfast.tune.create_searcher("random", metric="loss")).__name__ == "BasicVariantGenerator"
    with pytest.raises(
        ValueError,
        match="must be one of random, variant_generator, ax, bayesopt, bohb, hyperopt, nevergrad",
    ):
        holdfast.tune.create_searcher("skopt")
    with pytest.raises(ValueError, match="needs an old numpy"):
        holdfast.tune.create_searcher("hebo")
