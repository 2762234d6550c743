"""How the trials of an experiment run: as what, where, and with which driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.trial import Trial
from holdfast.core.run.state import CheckpointRecord, RunSpec
from holdfast.driver.configuration import configuration, configured_for
from holdfast.driver.display import Display
from holdfast.driver.plan import Plan
from holdfast.driver.runtime import Driver
from holdfast.driver.storage import NodeAddress
from holdfast.driver.storage_place import storage_of
from holdfast.engine.engine_interface import Engine, Inbox
from holdfast.engine.script_imports import packages_of
from holdfast.errors import TuneError
from holdfast.settings import Settings
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.train.config import RunConfig
from holdfast.train.context import OWN_DIRECTORY, TRIAL
from holdfast.train.trainer import DataParallelTrainer
from holdfast.train.worker_demand import demand_of
from holdfast.tune.experiment.capacity import BundlePlacement
from holdfast.tune.experiment.definition import Definition, scaling_of
from holdfast.tune.experiment.exploit_checkpoint import adopt
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.pickled_trainable import PickledTrainable
from holdfast.tune.experiment.restore import has_finished, unheard
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.stored_definition import missing_in
from holdfast.tune.experiment.trial_storage import JournalBatch, TrialDiskStorage, TrialHistory, TrialRemoteStorage
from holdfast.tune.resources import total
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler
from holdfast.tune.stopper import NoopStopper
from holdfast.tune.trainable import entry_of, resources_of, trainer_resources, trial_trainer
from holdfast.tune.trainable.output_files import with_output_files

_NEVER_PAUSE = (FIFOScheduler, ASHAScheduler)


class ExperimentClock(Protocol):
    def monotonic(self) -> float: ...
    def time(self) -> float: ...


@dataclass(frozen=True)
class SharedByTrials:
    """What all running trials of an experiment share."""

    nodes: SharedNodes
    batch: JournalBatch
    inbox: Inbox
    settings: Settings
    listeners: Listeners
    clock: ExperimentClock = time


class TrialRuntime:
    """The parts of running a trial that are outside the loop. The simulator has its own implementation."""

    def __init__(self, trainable: Any, definition: Definition, location: Location, settings: Settings) -> None:
        self._trainable, self._definition = trainable, definition
        self._location, self._settings = location, settings
        self._entry: PickledTrainable | None = None
        self.configure: Any = None  # the first message to the agents

    def prepare(self) -> None:
        """The payload of trials is pickled once if it is the same for all."""
        if not isinstance(self._trainable, DataParallelTrainer):
            run, scheduler = self._definition.run_config, self._definition.tune_config.scheduler
            may_pause = scheduler is not None and type(scheduler) not in _NEVER_PAUSE
            decides = {"may_pause": may_pause, "may_stop": not self._never_decides}
            entry = entry_of(self._trainable, run.checkpoint_config, run.stop, **decides)
            self._entry = PickledTrainable(with_output_files(entry, run.log_to_file))

    def open(self, storage: Any) -> None:
        run = self._definition.run_config
        plan = Plan(
            name=run.name,
            location=self._location,
            spec=RunSpec(),
            payload=b"",
            identity={},
            essential=("holdfast.train.payload", "holdfast.train.api", "holdfast.tune.trainable"),
            preload=tuple(run.preload),
            imported=packages_of(self._trainable),
        )
        self.configure = configured_for(configuration(plan, self._settings, NodeAddress()), storage)

    def bundles_of(self, config: dict[str, Any]) -> list[dict[str, float]]:
        if isinstance(self._trainable, DataParallelTrainer):
            return trainer_resources(self._trainable, config).bundles
        return resources_of(self._trainable, config).bundles

    def placement_of(self, trial: Trial) -> BundlePlacement:
        if not isinstance(self._trainable, DataParallelTrainer):
            request = resources_of(self._trainable, trial.config)
            return BundlePlacement(request.strategy, tuple(request.options.get("bundle_label_selector") or ()))
        asked = demand_of(trial_trainer(self._trainable, trial.config).scaling_config, self._definition.run_config)
        labels = tuple(asked.labels_of(number) for number in range(len(trial.resources))) if asked.labels else ()
        known = {name for bundle in trial.resources for name in bundle}
        besides = {name: amount for name, amount in asked.resources.items() if name not in known}
        return BundlePlacement(asked.strategy, labels, besides)

    def plan_of(self, trial: Trial) -> Plan:
        missing = missing_in(trial.config)
        if missing:
            raise TuneError(f"{', '.join(missing)} of its config was not stored: pass param_space again to restore it")
        trainer = self._trainer(trial)
        about = {
            "id": trial.trial_id,
            "name": trial.name,
            "experiment": self._definition.run_config.name,
            "resources": total(trial.resources),
            "bundles": [dict(bundle) for bundle in trial.resources],
            OWN_DIRECTORY: self._definition.has_own_directories,
        }
        plan = trainer._plan(self._location / trial.directory, self._settings, identified=False)
        return replace(
            plan,
            name=trial.name,
            lockstep=self._lockstep,
            metadata={**plan.metadata, TRIAL: about},
            how_to_resume="use Tuner.restore(..., resume_errored=True)",
            like=self.configure,
        )

    @cached_property
    def _never_decides(self) -> bool:
        scheduler = self._definition.tune_config.scheduler
        return scheduler is None or type(scheduler) is FIFOScheduler

    @cached_property
    def _lockstep(self) -> bool:
        return not (self._never_decides and isinstance(self._definition.stopper, NoopStopper))

    def _trainer(self, trial: Trial) -> DataParallelTrainer:
        run = self._definition.run_config
        own = RunConfig(
            name=trial.directory,
            storage_path=str(self._location),
            storage_filesystem=self._location.filesystem,
            failure_config=replace(run.failure_config, fail_fast=False),
            checkpoint_config=run.checkpoint_config,
            sync_config=run.sync_config,
            worker_runtime_env=run.worker_runtime_env,
            verbose=0,
            preload=run.preload,
        )
        if isinstance(self._trainable, DataParallelTrainer):
            return trial_trainer(self._trainable, trial.config, own)
        assert self._entry is not None
        scaling = scaling_of([dict(bundle) for bundle in trial.resources])
        return DataParallelTrainer(
            self._entry,
            train_loop_config=trial.config,
            scaling_config=scaling,
            run_config=own,
            resume_from_checkpoint=self._definition.start_from,
        )

    # What touches storage

    def driver_of(self, plan: Plan, engine: Engine, inbox: Inbox, history: TrialHistory, display: Display) -> Driver:
        disk, remote = partial(TrialDiskStorage, history), partial(TrialRemoteStorage, history)
        storage = storage_of(disk, remote, plan.location, inbox, self._settings, plan.score_attribute)
        return Driver(plan, engine, self._settings, inbox=inbox, storage=storage, display=display)

    def adopt(self, donor: Trial, trial: Trial, number: int | None) -> CheckpointRecord:
        """Copy the donor's checkpoint to the trial. StorageError if that is impossible."""
        where = self._location / donor.directory, self._location / trial.directory
        score_attribute = self._definition.run_config.checkpoint_config.checkpoint_score_attribute
        return adopt(*where, number, f"x{trial.exploits + 1}", score_attribute, self._settings.storage_patience_s)

    def unheard(self, trial: Trial, records: list[Record]) -> list[ev.Reported]:
        return unheard(trial, self._location / trial.directory, records, self._settings.storage_patience_s)

    has_finished: Callable[[list[Record]], bool] = staticmethod(has_finished)
