"""``DataParallelTrainer``: turns the script's arguments into a plan, lets the driver run it, and returns the result."""

from __future__ import annotations

import inspect
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

from holdfast import settings, wrapper
from holdfast.core.budgets import SETTINGS
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.driver import stop_requests
from holdfast.driver.plan import Ending, Plan, ShardSource
from holdfast.driver.runtime import Driver
from holdfast.engine import choose
from holdfast.engine.script_imports import frameworks_of, needed_by_workers
from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.platform import interrupt
from holdfast.platform.open_files import limit_raised
from holdfast.runs.run_progress import progress_with
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.trackers.notification import notifying
from holdfast.trackers.observing import observing
from holdfast.train import record
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import check_plain
from holdfast.train.config import BackendConfig, RunConfig
from holdfast.train.data import configured
from holdfast.train.data_config import DataConfig
from holdfast.train.fresh_start import check_not_fresh, start_fresh
from holdfast.train.integrations import imported_integrations
from holdfast.train.launched import Joined, Launched, LaunchedWorld, follow
from holdfast.train.payload import Payload, TrainEntry, TrainFn, validator
from holdfast.train.ray_data import is_ray_data
from holdfast.train.ray_variables import TRAIN_CALLBACKS, callbacks_in
from holdfast.train.result import Result
from holdfast.train.scaling_config import ScalingConfig
from holdfast.train.sending import sent_to_workers
from holdfast.train.unused import warn_unused_in_training
from holdfast.train.user_callback import TrainRunContext, UserCallback, tell_of_exceptions, tell_of_reports
from holdfast.train.validation import ValidationConfig
from holdfast.train.worker_demand import demand_of
from holdfast.ui import run_display

T = TypeVar("T", bound="DataParallelTrainer")
_PLAIN: dict[type, str] = {Mapping: "dict"}  # as a user would say it


class DataParallelTrainer:
    """Runs ``train_loop_per_worker`` on every worker, and restarts it after failures until it has returned on all."""

    config_argument: ClassVar[str] = "backend_config"  # of the constructor, for the framework's configuration

    def __init__(
        self,
        train_loop_per_worker: TrainFn,
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        self._takes_config = _takes_config(train_loop_per_worker)
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = backend_config or BackendConfig()
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.datasets = datasets or {}
        self.data_config = dataset_config or DataConfig()
        self.resume_from_checkpoint = resume_from_checkpoint
        self.metadata = metadata or {}
        self.validation_config = validation_config
        self._check_types()

    def fit(self) -> Result:
        """Run the training until it finishes. The same (storage_path, name) resumes a run whose driver was stopped or
        killed.

        Raises ``TrainingFailedError`` when there are more failures than ``FailureConfig`` allows.
        """
        world = self._launched()
        if world is not None and world.rank > 0:
            return follow(world, self._payload(world), self.train_loop_config)
        start_fresh(self.run_config, "run")
        location = self.run_config.location
        in_force = settings.load()
        wanted = self.run_config.engine or in_force.engine
        warn_unused_in_training(self.scaling_config, self.run_config, on_ray=wanted == "ray")
        demand = demand_of(self.scaling_config, self.run_config)
        engine = choose(wanted, self.scaling_config.num_workers == 0, demand)
        if location.is_in_memory and self.scaling_config.num_workers != 0:
            raise ValueError(
                f"RunConfig(storage_path={str(location.parent)!r}): workers cannot reach the memory of this process; "
                "use a directory or a bucket, or ScalingConfig(num_workers=0)"
            )
        theirs = [name for name, data in self.datasets.items() if is_ray_data(data)]
        if theirs and wanted != "ray" and self.scaling_config.num_workers != 0:
            raise ValueError(
                f"datasets={{{theirs[0]!r}: ...}}: workers can read a dataset of Ray Data with "
                'RunConfig(engine="ray"); elsewhere, pass a list, an array or a torch Dataset'
            )
        engine.check(self.scaling_config.num_gpus_per_worker * self.scaling_config.max_workers)
        plan = self._plan(location, in_force)
        plan, engine = wrapper.in_force().run(plan, engine)
        in_process = self.scaling_config.num_workers == 0
        port, host, event_log = in_force.metrics_port, in_force.metrics_host, in_force.event_log
        with (
            interrupt.held(in_process),
            limit_raised(),
            self.run_config.logging_config.in_force(),
            notifying(in_force.notify, "run", location) as notify,
            observing(plan.name, location, port=port, host=host, event_log=event_log) as observer,
        ):
            kind = "off" if self.run_config.verbose == 0 else in_force.display
            display = run_display.make(kind, progress=progress_with(self.train_loop_config))
            driver = Driver(plan, engine, in_force, observer=observer, display=display)
            with stop_requests.watched(location, driver.ask_to_stop, in_process):
                ending = engine.host(driver.run, driver.ask_to_stop)
            notify(ending.outcome.value, "" if ending.error is None else str(ending.error))
        return self._result(location, ending)

    def _result(self, location: Location, ending: Ending) -> Result:
        if ending.error is not None:
            raise ending.error
        if ending.outcome is Outcome.STOPPED:
            if ending.signal not in (None, signal.SIGINT):
                raise SystemExit(128 + ending.signal)
            raise KeyboardInterrupt(f"the run was stopped. To resume, {self._how_to_resume(location)}")
        return Result.from_history(
            location,
            StoredRun(location).read(with_driver=False),
            return_value=ending.return_value,
            config=self.train_loop_config,
        )

    @classmethod
    def restore(
        cls: type[T],
        path: str | os.PathLike[str],
        train_loop_per_worker: TrainFn | None = None,
        train_loop_config: dict[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        storage_filesystem: Any = None,
        **more: Any,
    ) -> T:
        """Return the trainer of an existing run, to resume it.

        User code is never stored, so pass the train function again. Other arguments that you do not pass come from the
        run's record. Some cannot be stored there, and an error asks for them: datasets, a validation function,
        ``worker_runtime_env`` (it may hold secrets). A ``run_config`` replaces the whole previous one. ``more`` are the
        other arguments of the trainer.
        """
        check_not_fresh(run_config, f"{cls.__name__}.restore")
        location = _run_in_force(Location.parse("restore(path", path, storage_filesystem))
        identity = record.read(location)
        if train_loop_per_worker is None:
            what = f"{cls.__name__}.restore(train_loop_per_worker=...)"
            raise ValueError(f"{what}: pass the function again, because code is not stored")
        missing = sorted(set(identity.get("datasets", ())) - set(datasets or {}))
        if missing:
            raise ValueError(f"restore(datasets=...): pass the run's datasets again: {', '.join(missing)} not given")
        if train_loop_config is None:
            train_loop_config = record.config_of(identity)
        given = {name for name, value in more.items() if value is not None}
        record.check_given(identity, given if run_config is None else given | {"run_config"})
        run = run_config or record.run_config_of(identity)
        run.move_to(location)
        if "resume_from_checkpoint" not in given:
            more["resume_from_checkpoint"] = record.source_of(identity, location)
        if "dataset_config" not in given:
            more["dataset_config"] = record.data_config_of(identity)
        if "metadata" not in given:
            more["metadata"] = identity.get("metadata")
        trainer = cls(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            scaling_config=scaling_config or record.scaling_config_of(identity),
            run_config=run,
            datasets=datasets,
            **more,
        )
        if cls.config_argument not in given:
            trainer.backend_config = record.backend_config_of(identity, trainer.backend_config)
        return trainer

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether the path holds a run that ``restore`` can resume."""
        try:
            record.read(_run_in_force(Location.parse("can_restore(path", path, storage_filesystem)))
        except StorageUnavailableError:
            raise  # it is unknown whether a run exists, and starting again would be wrong
        except StorageError:
            return False
        return True

    def _plan(self, location: Location, in_force: settings.Settings, identified: bool = True) -> Plan:
        """The plan for the driver; not ``identified``: without the data that ``restore`` would need."""
        run, scaling = self.run_config, self.scaling_config
        payload = self._payload(self._launched())
        frameworks = frameworks_of(self.train_loop_per_worker, run.worker_runtime_env)
        listeners = [callback for callback in run.callbacks if isinstance(callback, UserCallback)]
        listeners += callbacks_in(TRAIN_CALLBACKS, UserCallback)
        context = TrainRunContext(run, self.train_loop_config, scaling, self.backend_config, self.data_config)
        return Plan(
            name=run.name,
            location=location,
            spec=_spec(run, scaling, in_force),
            payload=sent_to_workers(
                "the train function", payload, train_loop_config=self.train_loop_config, datasets=payload.datasets
            ),
            identity=record.identity_of(self) if identified else {},
            essential=(*self.backend_config.essential, "holdfast.train.payload", "holdfast.train.api"),
            preload_early=self.backend_config.preload_early and scaling.max_workers > 1,
            preload=(*self.backend_config.preload, *imported_integrations(), *frameworks, *run.preload),
            imported=[] if self.backend_config.essential else needed_by_workers(self.train_loop_per_worker, frameworks),
            env={str(k): str(v) for k, v in run.worker_runtime_env.get("env_vars", {}).items()},
            metadata=self.metadata,
            cpus_per_worker=scaling.num_cpus_per_worker,
            gpus_per_worker=scaling.num_gpus_per_worker,
            placement=scaling.placement_strategy,
            preemption_grace_s=run.failure_config.preemption_grace_s,
            snapshot_replicas=run.failure_config.snapshot_replicas,
            score_attribute=run.checkpoint_config.checkpoint_score_attribute,
            validation=validator(self.validation_config, location, sent_to_workers),
            on_report=tell_of_reports(context, location, listeners) if listeners else None,
            on_failure=tell_of_exceptions(context, listeners) if listeners else None,
            how_to_resume=self._how_to_resume(location),
            shards=self._shards(),
        )

    def _launched(self) -> LaunchedWorld | None:
        return LaunchedWorld.of_this_process() if self.scaling_config.num_workers == 0 else None

    def _payload(self, world: LaunchedWorld | None) -> Payload:
        fn: Callable[[], Any] = TrainEntry(self.train_loop_per_worker, self.train_loop_config or {}, self._takes_config)
        if world is None:
            fn = self.backend_config.wrap(fn)
        elif not self.backend_config.joins_torchrun:
            raise ValueError(
                f"{type(self).__name__}(num_workers=0) was started {world.world_size} times by torchrun, but does "
                f"not form a process group: use TorchTrainer, or start the script with python"
            )
        else:
            fn = Launched(world, self.backend_config.wrap(Joined(fn)))
        data, backend = self.data_config.mark(self.datasets), self.backend_config
        return Payload(fn, data, self.resume_from_checkpoint, backend.is_out_of_memory)

    def _shards(self) -> ShardSource | None:
        """The shards of the datasets that are Ray Data's."""
        datasets = {name: data for name, data in self.datasets.items() if is_ray_data(data)}
        if not datasets:
            return None
        from holdfast.engine.ray.data_splits import Splits

        config = self.data_config
        whole = [name for name in datasets if not config.is_split(name)]
        custom = partial(configured, config) if config.is_custom else None
        return Splits(datasets, whole, config.execution_options, config.enable_shard_locality, custom)

    def _how_to_resume(self, location: Location) -> str:
        is_found_again = self.run_config.has_own_name and not self.run_config.fresh
        if is_found_again and hasattr(sys, "ps1"):  # a notebook, or Python's prompt
            return "call fit() again"
        if is_found_again:
            return f"run the same command again: {shlex.join(sys.orig_argv)}"
        return f"use {type(self).__name__}.restore({str(location)!r}, train_loop_per_worker=...)"

    def _check_types(self) -> None:
        for argument, value, kind in (
            ("backend_config", self.backend_config, BackendConfig),
            ("scaling_config", self.scaling_config, ScalingConfig),
            ("run_config", self.run_config, RunConfig),
            ("dataset_config", self.data_config, DataConfig),
            ("datasets", self.datasets, Mapping),
            ("metadata", self.metadata, Mapping),
        ):
            if not isinstance(value, kind):
                raise TypeError(
                    f"{type(self).__name__}({argument}={value!r}): pass a {_PLAIN.get(kind, kind.__name__)}"
                )
        if self.train_loop_config is not None and not isinstance(self.train_loop_config, Mapping):
            raise TypeError(f"{type(self).__name__}(train_loop_config={self.train_loop_config!r}): pass a dict")
        remedy = "pass strings, numbers, lists and dicts, and other objects with train_loop_config"
        check_plain(type(self).__name__, "metadata", self.metadata, remedy)
        self.data_config.check(self.datasets)
        source = self.resume_from_checkpoint
        if source is not None and not isinstance(source, Checkpoint):
            raise TypeError(f"resume_from_checkpoint={source!r}: pass a holdfast.train.Checkpoint")
        if source is not None and not source.exists():
            raise ValueError(
                f"resume_from_checkpoint={source!r}: the directory does not exist. Pass an existing checkpoint."
            )
        if self.validation_config is not None and not isinstance(self.validation_config, ValidationConfig):
            raise TypeError("validation_config: pass a holdfast.train.ValidationConfig")


def _run_in_force(run: Location) -> Location:
    return wrapper.in_force().storage(run.parent) / run.name


def _takes_config(fn: Any) -> bool:
    if not callable(fn):
        raise TypeError(f"train_loop_per_worker={fn!r}: pass a function")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return True
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 1:
        names = ", ".join(p.name for p in required)
        raise ValueError(
            f"train_loop_per_worker takes the arguments {names}. Give it one argument, the config, or none"
        )
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


def _spec(run: RunConfig, scaling: ScalingConfig, in_force: settings.Settings) -> RunSpec:
    failure, checkpoint = run.failure_config, run.checkpoint_config
    return RunSpec(
        num_workers=max(1, scaling.max_workers),
        min_workers=scaling.min_workers if scaling.elasticity_enabled else 0,
        resize_interval_s=float(scaling.elastic_resize_monitor_interval_s),
        **{name: getattr(failure, name) for name in SETTINGS},
        max_same_errors=failure.max_same_errors,
        bad_node_failures=in_force.bad_node_failures,
        bad_node_rest_s=in_force.bad_node_rest_s,
        num_to_keep=checkpoint.num_to_keep,
        scored=checkpoint.checkpoint_score_attribute is not None,
        score_order=checkpoint.checkpoint_score_order,
        rank_zero_only=checkpoint.rank_zero_only,
        backoff_s=failure.backoff_s,
        max_backoff_s=failure.max_backoff_s,
        start_timeout_s=in_force.start_timeout_s,
        hang_timeout_s=failure.hang_timeout_s if isinstance(failure.hang_timeout_s, int | float) else 0.0,
        learns_hangs=failure.hang_timeout_s == "auto",
        stopped_grace_s=in_force.stopped_grace_s,
        standby_workers=scaling.standby_workers,
        regroup_timeout_s=in_force.regroup_timeout_s,
        missing_warning_s=in_force.missing_report_warning_s,
        nodes_hold_files=run.location.takes_uploads,
        sync_period_s=float(run.sync_config.sync_period or 0),
    )
