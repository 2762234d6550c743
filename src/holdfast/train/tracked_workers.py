"""Sessions of trackers inside a worker or a trial: for scripts that log there by themselves, and not with a callback.

The session is named for the trial, so that a restored one continues it. Ranks other than 0 get one that does nothing.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.train.context import TrainContext, get_context


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Start a W&B run in this process, and return it. Other keywords go to ``wandb.init``."""
    wandb = _module("setup_wandb", "wandb")
    context = _context()
    if rank_zero_only and context is not None and context.get_world_rank() != 0:
        return wandb.init(mode="disabled")
    if api_key_file:
        with open(os.path.expanduser(api_key_file)) as file:
            api_key = file.read().strip()
    if api_key:
        wandb.login(key=api_key)
    about = {}
    if context is not None:
        about = {"id": context.get_trial_id(), "name": context.get_trial_name(), "group": context.get_experiment_name()}
    about = {name: kwargs.pop(f"trial_{name}", value) for name, value in about.items()}
    options = {**about, "resume": "allow", "allow_val_change": True, "config": dict(config or {}), **kwargs}
    return wandb.init(**options)


def setup_mlflow(
    config: Mapping[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: Mapping[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start an MLflow run in this process, log ``config`` as its parameters, and return the module ``mlflow``.

    The experiment is the one with that id or name; by default it is named after the trial.
    """
    mlflow = _module("setup_mlflow", "mlflow")
    context = _context()
    if rank_zero_only and context is not None and context.get_world_rank() != 0:
        return _Silent()
    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token  # the only way in that MLflow has for it
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    name = experiment_name or (context.get_trial_name() if context is not None else None)
    found = _mlflow_experiment(mlflow, experiment_id, name)
    if found is None and not create_experiment_if_not_exists:
        raise ValueError(
            f"setup_mlflow(experiment_name={name!r}): MLflow has no such experiment; pass "
            "create_experiment_if_not_exists=True, or the name of one that exists"
        )
    if found is None:
        found = mlflow.create_experiment(name, artifact_location=artifact_location)
    mlflow.start_run(experiment_id=found, run_name=run_name or name, tags=dict(tags or {}))
    mlflow.log_params(dict(flat_items(config or {})))
    return mlflow


def _mlflow_experiment(mlflow: Any, id: str | None, name: str | None) -> Any:
    if id is not None:
        return mlflow.get_experiment(id).experiment_id
    known = None if name is None else mlflow.get_experiment_by_name(name)
    return None if known is None else known.experiment_id


class _Silent:
    """Has every attribute and can be called, and does nothing."""

    def __getattr__(self, name: str) -> _Silent:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def _module(function: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{function} needs {name}: run pip install {name}") from error


def _context() -> TrainContext | None:
    try:
        return get_context()
    except RuntimeError:
        return None
