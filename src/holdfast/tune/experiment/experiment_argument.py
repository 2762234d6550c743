"""``Experiment``: the checked arguments of ``tune.run`` and ``tune.run_experiments`` for one experiment."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.errors import TuneError
from holdfast.train.config import CheckpointConfig, RunConfig, SyncConfig, unique_name
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.registry import check_trainable, get_trainable, name_of
from holdfast.tune.stopper import Stopper, as_stopper


class Experiment:
    """A trainable with a name, and how it is searched, stopped and stored. ``spec`` holds all of this."""

    def __init__(
        self,
        name: str | None,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: float | timedelta | None = None,
        config: Mapping[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: Any = None,
        sync_config: SyncConfig | Mapping[str, Any] | None = None,
        checkpoint_config: CheckpointConfig | Mapping[str, Any] | None = None,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        log_to_file: Any = False,
        export_formats: Sequence[str] | None = None,
        max_failures: int = 0,
        restore: str | os.PathLike[str] | None = None,
        local_dir: str | None = None,
    ) -> None:
        if config is not None and not isinstance(config, dict):
            raise ValueError(f"Experiment(config={config!r}): pass a dict")
        self.trainable = get_trainable(run) if isinstance(run, str) else run
        if not isinstance(self.trainable, DataParallelTrainer):
            check_trainable(self.trainable)
        checkpoints = _made(CheckpointConfig, checkpoint_config)
        if not isinstance(self.trainable, type) and (checkpoints.checkpoint_frequency or checkpoints.checkpoint_at_end):
            raise ValueError(
                "Experiment(checkpoint_config=...): a function saves when it calls report(metrics, checkpoint=…); "
                "leave checkpoint_frequency and checkpoint_at_end out, or use a class Trainable"
            )
        stop = as_stopper(list(stop)) if isinstance(stop, (list, tuple)) else stop or None
        where: dict[str, Any] = {"storage_path": storage_path or local_dir, "storage_filesystem": storage_filesystem}
        name = name or unique_name(name_of(self.trainable))
        self._location = RunConfig(name=name, stop=stop, **where).location
        self.name = self._location.name
        self.spec: dict[str, Any] = {
            "run": run,
            "stop": stop,
            "time_budget_s": time_budget_s,
            "config": config or {},
            "resources_per_trial": resources_per_trial,
            "num_samples": num_samples,
            "storage_path": storage_path or local_dir,
            "storage_filesystem": storage_filesystem,
            "sync_config": _made(SyncConfig, sync_config),
            "checkpoint_config": checkpoints,
            "trial_name_creator": trial_name_creator,
            "trial_dirname_creator": trial_dirname_creator,
            "log_to_file": log_to_file,
            "export_formats": list(export_formats or ()),
            "max_failures": max_failures,
            "restore": restore,
        }

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Create an experiment from a dict with "run" and the arguments of ``Experiment``."""
        given = dict(spec)
        if "run" not in given:
            raise TuneError(f"Experiment.from_json({name!r}): the spec names no trainable; add 'run'")
        if "env" in given:
            given["config"] = {**given.get("config", {}), "env": given.pop("env")}
        try:
            return cls(name, given.pop("run"), **{key: copy.deepcopy(value) for key, value in given.items()})
        except TypeError as error:
            raise TuneError(f"Experiment.from_json({name!r}, {dict(spec)!r}): {error}") from error

    @property
    def path(self) -> str:
        """Where it is stored: a directory or URL."""
        return str(self._location)

    @property
    def stopper(self) -> Stopper:
        return as_stopper(self.spec["stop"], None)

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        found: CheckpointConfig = self.spec["checkpoint_config"]
        return found

    @property
    def public_spec(self) -> dict[str, Any]:
        """The parts of ``spec`` that callbacks may look at."""
        return {name: self.spec[name] for name in ("stop", "num_samples", "time_budget_s")}


def _made(kind: Any, given: Any) -> Any:
    return kind(**given) if isinstance(given, Mapping) else given or kind()
