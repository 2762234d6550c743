"""The public names of ``holdfast.train``, frozen. Scripts use them: add, never change or remove.

A signature is written as it is called; ``...`` is a default that is made again for each call.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

import pytest

import holdfast.train
import holdfast.train.collective
import holdfast.train.torch

TRAIN = {
    "BackendConfig": "()",
    "Checkpoint": "(path, filesystem=None)",
    "CheckpointConfig": "(num_to_keep=None, checkpoint_score_attribute=None, checkpoint_score_order='max', "
    "checkpoint_frequency=0, checkpoint_at_end=None, rank_zero_only=False)",
    "CheckpointConsistencyMode": "COMMITTED VALIDATED",
    "CheckpointUploadMode": "ASYNC SYNC NO_UPLOAD",
    "ControllerError": "(controller_failure, remedy='')",
    "DataConfig": "(datasets_to_split='all', execution_options=None, enable_shard_locality=True)",
    "DataParallelTrainer": "(train_loop_per_worker, *, train_loop_config=None, backend_config=None, "
    "scaling_config=None, run_config=None, datasets=None, dataset_config=None, resume_from_checkpoint=None, "
    "metadata=None, validation_config=None)",
    "DataShard": "(data, rank, world_size)",
    "FailureConfig": "(max_failures=0, fail_fast=False, controller_failure_limit=-1, max_preemption_failures=-1, "
    "relax_collectives_on_preemption=False, preemption_grace_s=0.0, hang_timeout_s=None, backoff_s=0.5, "
    "max_backoff_s=60.0, max_hang_failures=None, max_same_errors=0, "
    "snapshot_replicas=1)",
    "LoggingConfig": "(log_level='INFO')",
    "NCCLHangError": "error",
    "PreemptionError": "(preemption_info, drain_timed_out=False)",
    "PreemptionInfo": "(deadline_ms, preempted_node_to_ranks)",
    "ReportedCheckpoint": "(checkpoint, metrics, status)",
    "ReportedCheckpointStatus": "COMMITTED PENDING_VALIDATION VALIDATED VALIDATION_TIMEOUT VALIDATION_FAILED",
    "Result": "(*, metrics=None, checkpoint=None, error=None, path='', rows=(), best_checkpoints=None, config=None, "
    "return_value=None, filesystem=None, ledger=None)",
    "RunConfig": "(name=None, storage_path=..., storage_filesystem=None, failure_config=..., checkpoint_config=..., "
    "callbacks=..., worker_runtime_env=..., logging_config=..., sync_config=..., verbose=None, stop=None, "
    "progress_reporter=None, log_to_file=False, engine=None, preload=(), fresh=False)",
    "ScalingConfig": "(trainer_resources=None, num_workers=1, use_gpu=False, resources_per_worker=None, "
    "placement_strategy='PACK', accelerator_type=None, label_selector=None, use_tpu=False, topology=None, "
    "elastic_resize_monitor_interval_s=60.0, standby_workers=0)",
    "SyncConfig": "(sync_period=0, sync_timeout=1800, sync_artifacts=False, sync_artifacts_on_checkpoint=True)",
    "TRAIN_DATASET_KEY": "'train'",
    "TrainContext": "(session)",
    "TrainRunContext": "(run_config, train_loop_config, scaling_config, backend_config, dataset_config, run_id=...)",
    "TrainingFailedError": "error",
    "UserCallback": "()",
    "ValidationConfig": "(fn, task_config=None, ray_remote_kwargs=None)",
    "ValidationFn": "(*args, **kwargs)",
    "ValidationTaskConfig": "(fn_kwargs=None, timeout_s=None)",
    "WorkerGroupError": "(error_message, worker_failures)",
    "checkpoint_requested": "()",
    "collective": "module",
    "get_all_reported_checkpoints": "(consistency_mode=VALIDATED, timeout_s=None)",
    "get_checkpoint": "()",
    "get_context": "()",
    "get_dataset_shard": "(dataset_name=None)",
    "get_preemption_info": "()",
    "report": "(metrics, checkpoint=None, checkpoint_dir_name=None, checkpoint_upload_mode=ASYNC, "
    "delete_local_checkpoint_after_upload=None, checkpoint_upload_fn=None, validation=False)",
}

TORCH = {
    "CheckpointConfig": TRAIN["CheckpointConfig"],
    "ElasticSampler": "(dataset, global_batch_size=None, shuffle=True, seed=0, num_replicas=None, rank=None)",
    "ElasticStream": "(dataset, global_batch_size=None)",
    "FailureConfig": TRAIN["FailureConfig"],
    "RunConfig": TRAIN["RunConfig"],
    "ScalingConfig": TRAIN["ScalingConfig"],
    "SeededDataset": "(dataset, seed=0)",
    "TorchCheckpoint": "(path, filesystem=None)",
    "TorchConfig": "(backend=None, init_method='env', timeout_s=1800)",
    "TorchTrainer": "(train_loop_per_worker, *, train_loop_config=None, torch_config=None, scaling_config=None, "
    "run_config=None, datasets=None, dataset_config=None, validation_config=None, metadata=None, "
    "resume_from_checkpoint=None)",
    "TrainState": "(**components)",
    "accelerate": "(amp=False)",
    "backward": "(tensor)",
    "enable_reproducibility": "(seed=0)",
    "get_device": "()",
    "get_devices": "()",
    "prepare_data_loader": "(data_loader, add_dist_sampler=True, move_to_device=True, auto_transfer=True)",
    "prepare_model": "(model, move_to_device=True, parallel_strategy='ddp', parallel_strategy_kwargs=None)",
    "prepare_optimizer": "(optimizer)",
    "rng_state": "()",
    "seed_rng": "(*key)",
    "set_rng_state": "(state)",
}

MEMBERS = {
    "Checkpoint": {
        "as_directory": "()",
        "exists": "()",
        "filesystem": "property",
        "from_directory": "(path)",
        "get_metadata": "()",
        "held": "(location, directory)",
        "set_metadata": "(metadata)",
        "to_directory": "(path=None)",
        "update_metadata": "(metadata)",
    },
    "DataParallelTrainer": {
        "can_restore": "(path, storage_filesystem=None)",
        "fit": "()",
        "restore": "(path, train_loop_per_worker=None, train_loop_config=None, scaling_config=None, run_config=None, "
        "datasets=None, storage_filesystem=None, **more)",
    },
    "DataShard": {
        "iter_batches": "(*, batch_size=256, drop_last=False, local_shuffle_buffer_size=None, local_shuffle_seed=None)",
        "iter_torch_batches": "(*, batch_size=256, dtypes=None, device='auto', collate_fn=None, drop_last=False, "
        "local_shuffle_buffer_size=None, local_shuffle_seed=None)",
    },
    "PreemptionInfo": {"preempted_node_ids": "property", "preempted_ranks": "property"},
    "Result": {
        "filesystem": "property",
        "ledger": "property",
        "from_history": "(location, history, *, error=None, return_value=None, config=None)",
        "from_path": "(path, storage_filesystem=None)",
        "get_best_checkpoint": "(metric, mode)",
        "metrics_dataframe": "property",
    },
    "ScalingConfig": {
        "additional_resources_per_worker": "property",
        "elasticity_enabled": "property",
        "max_workers": "property",
        "min_workers": "property",
        "num_cpus_per_worker": "property",
        "num_gpus_per_worker": "property",
        "num_tpus_per_worker": "property",
        "total_resources": "property",
        "worker_resources": "property",
    },
    "TrainContext": {
        "get_experiment_name": "()",
        "get_local_rank": "()",
        "get_local_world_size": "()",
        "get_metadata": "()",
        "get_node_rank": "()",
        "get_storage": "()",
        "get_trial_dir": "()",
        "get_trial_id": "()",
        "get_trial_name": "()",
        "get_trial_resources": "()",
        "get_world_rank": "()",
        "get_world_size": "()",
    },
    "UserCallback": {
        "after_exception": "(run_context, worker_exceptions)",
        "after_report": "(run_context, metrics, checkpoint)",
    },
}


def described(thing: Any) -> str:
    if inspect.ismodule(thing):
        return "module"
    if isinstance(thing, property):
        return "property"
    if isinstance(thing, type) and issubclass(thing, Enum):
        return " ".join(member.name for member in thing)
    if isinstance(thing, type) and issubclass(thing, Exception) and "__init__" not in vars(thing):
        return "error"
    if not callable(thing):
        return repr(thing)
    return _signature(thing)


def _signature(thing: Any) -> str:
    parts: list[str] = []
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]
    for previous, parameter in zip([None, *parameters], parameters, strict=False):
        only_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if only_keyword and (previous is None or previous.kind is not parameter.KEYWORD_ONLY):
            parts.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{star}{parameter.name}{_default(parameter.default)}")
    return f"({', '.join(parts)})"


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, Enum):
        return f"={value.name}"
    return "=..." if repr(value) == "<factory>" else f"={value!r}"


@pytest.mark.parametrize(("module", "names"), [(holdfast.train, TRAIN), (holdfast.train.torch, TORCH)])
def test_names_and_signatures(module: Any, names: dict[str, str]) -> None:
    assert sorted(module.__all__) == sorted(names)
    assert {name: described(getattr(module, name)) for name in names} == names


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name: str) -> None:
    kind = getattr(holdfast.train, name)
    public = {member for member, value in vars(kind).items() if not member.startswith("_") and _is_member(value)}
    assert public == set(MEMBERS[name])
    assert {member: described(getattr(kind, member)) for member in public} == MEMBERS[name]


def _is_member(value: Any) -> bool:
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)


def test_collectives() -> None:
    collective = holdfast.train.collective
    assert described(collective.barrier) == "()"
    assert described(collective.broadcast_from_rank_zero) == "(data)"


def test_results_have_the_fields_that_scripts_read() -> None:
    read = {
        "metrics",
        "checkpoint",
        "error",
        "path",
        "best_checkpoints",
        "config",
        "return_value",
        "filesystem",
    }
    assert all(hasattr(holdfast.train.Result(), name) for name in read)
