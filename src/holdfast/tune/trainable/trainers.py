"""A trainer as a trainable: what a trial's config changes in it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from holdfast.train.config import RunConfig
from holdfast.train.scaling_config import ScalingConfig, searched_fields
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.resources import PlacementGroupFactory, request_of

# The argument of a trainer's constructor -> the attribute that holds it.
_CAN_VARY = {
    "train_loop_config": "train_loop_config",
    "scaling_config": "scaling_config",
    "datasets": "datasets",
    "dataset_config": "data_config",
    "backend_config": "backend_config",
    "metadata": "metadata",
    "resume_from_checkpoint": "resume_from_checkpoint",
    "validation_config": "validation_config",
}
_MERGED = ("train_loop_config", "datasets", "metadata")


def trial_trainer(
    trainer: DataParallelTrainer, config: Mapping[str, Any], run_config: RunConfig | None = None
) -> DataParallelTrainer:
    """The trainer that a trial with this config runs; the given trainer is not changed.

    ``config`` has arguments of the trainer's constructor. The values of ``train_loop_config``, ``datasets`` and
    ``metadata`` are merged into the trainer's, dicts into dicts; a ``scaling_config`` that is a dict changes those
    fields.
    """
    made = copy.copy(trainer)
    made.run_config = run_config or trainer.run_config
    for argument, value in config.items():
        _check_can_vary(trainer, argument)
        attribute = _CAN_VARY.get(argument, "backend_config")
        before = getattr(trainer, attribute)
        if argument in _MERGED and isinstance(value, Mapping):
            value = _merged(before or {}, value)
        elif argument == "scaling_config" and isinstance(value, Mapping):
            value = _scaled(trainer.scaling_config, value)
        setattr(made, attribute, value)
    made._check_types()
    return made


def with_scaling_fields(space: dict[str, Any]) -> dict[str, Any]:
    """The space, in which a ``ScalingConfig`` with something to search in it is a dict of its fields."""
    scaling = space.get("scaling_config")
    if not isinstance(scaling, ScalingConfig) or not searched_fields(scaling):
        return space
    default = ScalingConfig()
    fields = {field.name: getattr(scaling, field.name) for field in dataclasses.fields(scaling)}
    changed = {name: value for name, value in fields.items() if value != getattr(default, name)}
    return {**space, "scaling_config": changed}


def trainer_resources(trainer: DataParallelTrainer, config: Mapping[str, Any]) -> PlacementGroupFactory:
    """The resources of a trial of this trainer: a bundle for each of its workers."""
    return request_of("scaling_config", trial_trainer(trainer, config).scaling_config)


def _check_can_vary(trainer: DataParallelTrainer, argument: str) -> None:
    name = type(trainer).__name__
    if argument == "run_config":
        raise ValueError("param_space['run_config']: all trials have the same; pass it to the Tuner")
    can_vary = {*_CAN_VARY, trainer.config_argument}
    if argument not in can_vary:
        raise ValueError(
            f"param_space[{argument!r}]: with a {name}, what the train function gets goes into "
            f"param_space['train_loop_config'], as in {{'train_loop_config': {{{argument!r}: …}}}}; the other keys can "
            f"be {', '.join(sorted(can_vary - {'train_loop_config'}))}"
        )


def _merged(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(before)
    for key, value in given.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _scaled(before: ScalingConfig, given: Mapping[str, Any]) -> ScalingConfig:
    known = {field.name for field in dataclasses.fields(ScalingConfig)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(f"param_space['scaling_config']: ScalingConfig has no {', '.join(unknown)}")
    return dataclasses.replace(before, **given)
