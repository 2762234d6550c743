"""The content of run.json for a training run: ``fit`` writes it, ``restore`` reads it.

Only plain values: no code, no object, and nothing of ``worker_runtime_env``, which may hold secrets. Objects of the run
that could not be stored are named, so that ``restore`` asks for them instead of continuing without them.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotARunError
from holdfast.runs.experiments import is_experiment
from holdfast.runs.reading import TYPED_CONFIG, train_loop_config
from holdfast.runs.stored_run import StoredRun
from holdfast.store import typed_values, values
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.config import (
    BackendConfig,
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    SyncConfig,
)
from holdfast.train.data_config import DataConfig
from holdfast.train.scaling_config import ScalingConfig

if TYPE_CHECKING:
    from holdfast.train.trainer import DataParallelTrainer


def identity_of(trainer: DataParallelTrainer) -> dict[str, Any]:
    run, config, data = trainer.run_config, trainer.train_loop_config, trainer.data_config
    backend, source = trainer.backend_config, trainer.resume_from_checkpoint
    return {
        "name": run.name,
        "trainer": type(trainer).__name__,
        "scaling": asdict(trainer.scaling_config),
        "failure": asdict(run.failure_config),
        "checkpoint": asdict(run.checkpoint_config),
        "sync": asdict(run.sync_config),
        "logging": asdict(run.logging_config),
        "engine": run.engine if isinstance(run.engine, str) else None,
        "verbose": run.verbose,
        "preload": list(run.preload),
        "backend": [type(backend).__name__, backend.to_dict() if _storable(backend.to_dict()) else {}],
        "datasets": sorted(trainer.datasets),
        "data": {"datasets_to_split": data.datasets_to_split, "enable_shard_locality": data.enable_shard_locality},
        "had_train_loop_config": config is not None,
        **_config_fields(config),
        "metadata": trainer.metadata if _storable(trainer.metadata) else {},
        "resume_from_checkpoint": None if source is None else _address(source.location),
        "callbacks": [type(callback).__name__ for callback in run.callbacks],
        "not_stored": _not_stored(trainer),
    }


def _config_fields(config: Any) -> dict[str, Any]:
    """The config with the types that JSON lacks. The plain ``train_loop_config`` is for people and web pages."""
    try:
        typed = typed_values.to_json(config)
        readable = values.decode(values.encode(config))
    except (TypeError, ValueError):
        return {"train_loop_config": None}
    has_types = typed_values.TYPE in repr(typed)
    return {"train_loop_config": readable, **({TYPED_CONFIG: typed} if has_types else {})}


def config_of(identity: dict[str, Any]) -> dict[str, Any] | None:
    """ValueError if the run had one that is not stored, or that is of a class which is not loaded here."""
    try:
        config = train_loop_config(identity)
    except typed_values.UnknownTypeError as error:
        raise ValueError(f"restore(): pass train_loop_config again: the stored one cannot be read ({error})") from error
    if config is None and identity.get("had_train_loop_config"):
        raise ValueError("restore(): pass train_loop_config again, because it could not be stored")
    return config


def _not_stored(trainer: DataParallelTrainer) -> list[str]:
    """Arguments of ``restore``, and after a dot those of its ``run_config``."""
    run, data = trainer.run_config, trainer.data_config
    found = {
        "metadata": not _storable(trainer.metadata),
        "validation_config": trainer.validation_config is not None,
        "dataset_config": type(data) is not DataConfig or data.execution_options is not None,
        "run_config.engine": run.engine is not None and not isinstance(run.engine, str),
        "run_config.worker_runtime_env": bool(run.worker_runtime_env),
    }
    return [name for name, had in found.items() if had]


def read(location: Location) -> dict[str, Any]:
    """Read the record of a run. NotARunError if there is no run, or if it is an experiment."""
    identity = StoredRun(location).identity()
    if is_experiment(identity):
        raise NotARunError(f"{location} is an experiment, not a training run: use Tuner.restore(path, trainable=...)")
    return identity


def check_given(identity: dict[str, Any], given: Collection[str]) -> None:
    """Check that ``restore`` was given everything that could not be stored."""
    lacking = [name for name in identity.get("not_stored", ()) if name.partition(".")[0] not in given]
    if lacking:
        own = [f"{name}=..." for name in lacking if "." not in name]
        of_run = ", ".join(f"{name.partition('.')[2]}=..." for name in lacking if "." in name)
        arguments = ", ".join([*own, *([f"run_config=RunConfig({of_run})"] if of_run else [])])
        raise ValueError(
            f"restore({arguments}): code, objects and environment variables are not stored with the run; "
            f"pass it again{'. A RunConfig replaces all settings of the stored one' if of_run else ''}"
        )
    if identity.get("callbacks") and "run_config" not in given:
        names = ", ".join(identity["callbacks"])
        warnings.warn(
            f"the run had the callbacks {names}, which are not stored: it continues without them unless you pass them "
            "again with restore(run_config=RunConfig(callbacks=...))",
            UserWarning,
            stacklevel=3,
        )


def run_config_of(identity: dict[str, Any]) -> RunConfig:
    """Earlier versions stored less."""
    return RunConfig(
        failure_config=FailureConfig(**identity["failure"]),
        checkpoint_config=CheckpointConfig(**identity["checkpoint"]),
        sync_config=SyncConfig(**identity.get("sync", {})),
        logging_config=LoggingConfig(**identity.get("logging", {})),
        engine=identity.get("engine"),
        verbose=identity.get("verbose"),
        preload=identity.get("preload", ()),
    )


def scaling_config_of(identity: dict[str, Any]) -> ScalingConfig:
    return ScalingConfig(**identity["scaling"])


def data_config_of(identity: dict[str, Any]) -> DataConfig:
    return DataConfig(**identity.get("data", {}))


def backend_config_of(identity: dict[str, Any], default: BackendConfig) -> BackendConfig:
    """``default`` is the trainer's default; only one of its class can be recreated."""
    name, fields = identity.get("backend", (type(default).__name__, {}))
    if name != type(default).__name__:
        raise ValueError(f"restore(backend_config=...): the run had a {name}, which is not stored; pass it again")
    return type(default)(**fields)


def source_of(identity: dict[str, Any], location: Location) -> Checkpoint | None:
    """The checkpoint that the run was started from. It may no longer exist once the run has its own checkpoints."""
    address = identity.get("resume_from_checkpoint")
    if address is None:
        return None
    source = Checkpoint(address) if address else None
    if source is not None and source.exists():
        return source
    if StoredRun(location).manifests()[0]:
        return None
    raise ValueError(
        "the run has no checkpoint of its own yet, and the checkpoint that it was started from "
        f"{f'is no longer at {address}' if address else 'was not stored with it'}. "
        "Pass that checkpoint again: restore(resume_from_checkpoint=...)"
    )


def _address(location: Location) -> str:
    """The path or URL that suffices to find it. Empty if it also needs an object or options, which may be secret."""
    return "" if location.filesystem is not None or location.options else str(location)


def _storable(value: Any) -> bool:
    try:
        return bool(values.decode(values.encode(value)) == value)
    except (TypeError, ValueError):
        return False
