"""Functions that scripts from Ray import from ``tune.utils``. Holdfast itself does not use them."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import cloudpickle

from holdfast.core.metric_names import flat_items
from holdfast.core.metric_names import lookup as find
from holdfast.tune.trainable.trainable import Trainable

__all__ = [
    "Verbosity",
    "date_str",
    "deep_update",
    "diagnose_serialization",
    "flatten_dict",
    "has_verbosity",
    "merge_dicts",
    "set_verbosity",
    "unflattened_lookup",
    "validate_save_restore",
    "validate_warmstart",
    "wait_for_gpu",
]


class Verbosity(Enum):
    """What ``RunConfig(verbose=)`` takes, by name."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3

    def __int__(self) -> int:
        return int(self.value)


_verbosity = [Verbosity.V3_TRIAL_DETAILS]


def set_verbosity(level: int | Verbosity) -> None:
    """Sets the level for the script's own calls of ``has_verbosity``. ``RunConfig(verbose=)`` controls Holdfast's
    output."""
    _verbosity[0] = Verbosity(int(level))


def has_verbosity(level: int | Verbosity) -> bool:
    return int(_verbosity[0]) >= int(level)


def validate_warmstart(
    parameter_names: list[str],
    points_to_evaluate: list[list[Any] | dict[str, Any]] | None,
    evaluated_rewards: list[Any] | None,
    validate_point_name_lengths: bool = True,
) -> None:
    """Check points and rewards for your own searcher. Raises an error if they do not fit each other or the
    parameters."""
    if not points_to_evaluate:
        return
    if not isinstance(points_to_evaluate, list):
        raise TypeError(f"points_to_evaluate={points_to_evaluate!r}: pass a list")
    for point in points_to_evaluate:
        if not isinstance(point, (dict, list)):
            raise TypeError(f"points_to_evaluate: {point!r} is neither a dict nor a list")
        if validate_point_name_lengths and len(point) != len(parameter_names):
            raise ValueError(f"points_to_evaluate: {point!r} does not have one value for each of {parameter_names}")
    if evaluated_rewards and not isinstance(evaluated_rewards, list):
        raise TypeError(f"evaluated_rewards={evaluated_rewards!r}: pass a list")
    if evaluated_rewards and len(evaluated_rewards) != len(points_to_evaluate):
        raise ValueError(f"{len(evaluated_rewards)} evaluated_rewards for {len(points_to_evaluate)} points_to_evaluate")


def validate_save_restore(
    trainable_cls: type[Trainable],
    config: dict[str, Any] | None = None,
    num_gpus: float = 0,  # noqa: ARG001  it runs in this process, which has them all
) -> bool:
    """Train an instance of a class trainable, save it, restore another instance from that and continue training.
    Returns True, or raises an error."""
    first = trainable_cls(config)
    second = trainable_cls(config)
    try:
        for _ in range(3):
            first.train()
        saved = first.save()
        try:
            second.restore(saved)
        finally:
            shutil.rmtree(saved.checkpoint.path, ignore_errors=True)
        for expected in (4, 5):
            found = second.train()["training_iteration"]
            if found != expected:
                raise ValueError(f"{trainable_cls.__name__}: restored after 3 iterations, {expected} became {found}")
    finally:
        first.stop()
        second.stop()
    return True


def diagnose_serialization(trainable: Callable[..., Any]) -> bool | set[str]:
    """Return True if a trainable can be sent to a trial, otherwise the names of the variables that cannot."""
    error = _pickling_error(trainable)
    if error is None:
        print(f"{trainable!r} can be sent to trials.")
        return True
    print(f"{trainable!r} cannot be sent to trials: {error}")
    scope = inspect.getclosurevars(trainable)
    failed = set()
    for name, value in {**scope.globals, **scope.nonlocals}.items():
        reason = _pickling_error(value)
        print(f"  {name}: {'can be sent' if reason is None else reason}")
        if reason is not None:
            failed.add(name)
    if failed:
        print(f"Create {', '.join(sorted(failed))} inside the trainable, or pass it with tune.with_parameters.")
    return failed


def _pickling_error(value: Any) -> str | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def flatten_dict(
    dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[str, Any]:
    """Turn ``{"a": {"b": 1}}`` into ``{"a/b": 1}``. With ``flatten_list``, positions in lists become names too. With
    ``prevent_delimiter``, a key that contains the delimiter is a ValueError.
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        if prevent_delimiter and isinstance(key, str) and delimiter in key:
            raise ValueError(f"flatten_dict: the key {key!r} has {delimiter!r} in it; choose another delimiter")
        is_list = flatten_list and isinstance(value, (list, tuple)) and len(value) > 0
        below = {str(place): item for place, item in enumerate(value)} if is_list else value
        if isinstance(below, Mapping) and below:
            inner = flatten_dict(below, delimiter, prevent_delimiter, flatten_list)
            flat.update({f"{key}{delimiter}{name}": item for name, item in inner.items()})
        else:
            flat[key] = value
    return flat


def unflattened_lookup(flat_key: str, lookup: Mapping[str, Any], delimiter: str = "/", **kwargs: Any) -> Any:
    """Return the value of a flat name in a nested dict. If there is none: ``default=`` if it is given, otherwise a
    KeyError."""
    found = find(lookup, flat_key.replace(delimiter, "/"), _NONE)
    if found is _NONE:
        if "default" in kwargs:
            return kwargs["default"]
        known = ", ".join(name for name, _ in flat_items(lookup))
        raise KeyError(f"{flat_key!r}: there is {known or 'nothing'}")
    return found


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: list[str] | None = None,
    override_all_if_type_changes: list[str] | None = None,
    override_all_key_list: list[str] | None = None,
) -> dict[str, Any]:
    """Copy the values of one nested dict into another, which is changed and returned.

    New keys are refused unless they are allowed: everywhere, or below the keys of ``allow_new_subkey_list``. Dicts
    below ``override_all_key_list``, and below ``override_all_if_type_changes`` if their "type" changes, are replaced.
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise ValueError(f"deep_update: unknown key {key!r}; known are {', '.join(map(str, original))}")
        below = original.get(key)
        changes_type = key in (override_all_if_type_changes or ()) and (
            isinstance(value, Mapping) and isinstance(below, Mapping) and value.get("type") != below.get("type")
        )
        replaces = key in (override_all_key_list or ()) or changes_type
        if isinstance(below, dict) and isinstance(value, Mapping) and not replaces:
            deep_update(below, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
        else:
            original[key] = value
    return original


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested dict with the values of both; the second one wins."""
    merged = {key: merge_dicts(value, {}) if isinstance(value, Mapping) else value for key, value in d1.items()}
    return deep_update(merged, d2, new_keys_allowed=True, allow_new_subkey_list=[])


def date_str() -> str:
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def wait_for_gpu(
    gpu_id: int | str | None = None,
    target_util: float = 0.01,
    retry: int = 20,
    delay_s: float = 5,
    gpu_memory_limit: float | None = None,  # noqa: ARG001  Ray takes it and does not use it
) -> bool:
    """Wait until at most ``target_util`` of a GPU's memory is in use, as ``nvidia-smi`` reports; by default of the
    first GPU that this process sees. RuntimeError if that does not happen."""
    wanted = str(gpu_id) if gpu_id is not None else _first_gpu()
    for attempt in range(int(retry)):
        used = _memory_in_use()
        if wanted not in used:
            raise ValueError(f"wait_for_gpu(gpu_id={wanted!r}): nvidia-smi lists {', '.join(sorted(used)) or 'none'}")
        if used[wanted] <= target_util:
            return True
        if attempt + 1 < retry:
            time.sleep(delay_s)
    raise RuntimeError(f"The memory of GPU {wanted} was not freed in {retry} checks, {delay_s} s apart")


def _first_gpu() -> str:
    return (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").partition(",")[0]


def _memory_in_use() -> dict[str, float]:
    """The used share of each GPU's memory, by its number and by its UUID."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"wait_for_gpu: nvidia-smi cannot be asked ({error})") from error
    found = {}
    for line in text.splitlines():
        index, uuid, used, total = (part.strip() for part in line.split(","))
        found[index] = found[uuid] = float(used) / float(total)
    return found


_NONE = object()
