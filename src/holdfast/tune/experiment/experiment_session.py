"""One driver's work on an experiment: its storage, its machine, its loop, and how its trials run."""

from __future__ import annotations

import contextlib
import math
import os
import queue
from dataclasses import replace
from typing import Any

from holdfast import settings
from holdfast.core.experiment.events import KINDS
from holdfast.core.run.state import RunSpec
from holdfast.driver.configuration import configuration, configured_for
from holdfast.driver.plan import Plan
from holdfast.driver.storage_place import storage_at
from holdfast.engine.base import Inbox
from holdfast.engine.demand import Demand
from holdfast.errors import StorageError, StorageUnavailableError, TuneError
from holdfast.runs.history import read_records
from holdfast.runs.past import IDENTITY
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.runfile import id_of
from holdfast.trackers.trial_callback import Callback
from holdfast.train.config import RunConfig
from holdfast.train.context import TRIAL
from holdfast.train.demand import demand_of
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.experiment.artifacts import Artifacts
from holdfast.tune.experiment.capacity import BundlePlacement
from holdfast.tune.experiment.definition import (
    KIND,
    Definition,
    is_local_logging_wanted,
    scaling_of,
)
from holdfast.tune.experiment.display import TrialsDisplay
from holdfast.tune.experiment.display import make as make_display
from holdfast.tune.experiment.experiment_driver import ExperimentDriver
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.machine import Experiment, Spec
from holdfast.tune.experiment.pickled_trainable import PickledTrainable
from holdfast.tune.experiment.restore import replay
from holdfast.tune.experiment.resumption import Resumption
from holdfast.tune.experiment.stored_definition import missing_in
from holdfast.tune.experiment.trial import Trial
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.experiment.trial_results import TrialResults
from holdfast.tune.logger import default_loggers
from holdfast.tune.resources import total
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler
from holdfast.tune.stopper import NoopStopper
from holdfast.tune.trainable import entry_of, resources_of, trainer_resources, trial_trainer
from holdfast.wire.objects.refs import open_session

_NEVER_PAUSE = (FIFOScheduler, ASHAScheduler)


class ExperimentSession:
    """One driver's work on an experiment."""

    def __init__(
        self,
        trainable: Any,
        definition: Definition,
        location: Location,
        in_force: settings.Settings,
        resumption: Resumption,
    ) -> None:
        self._trainable, self._definition, self._location = trainable, definition, location
        self._settings, self._resumption = in_force, resumption
        self._driver: ExperimentDriver | None = None
        self._entry: PickledTrainable | None = None
        self._asked: tuple[int, bool] | None = None

    def prepare(self, engine: Any) -> None:
        engine.check(0.0)  # connects to a cluster, so that references that are sent now are good there
        open_session()
        self._entry = self._sent()

    def run(self, engine: Any) -> str:
        inbox: Inbox = queue.SimpleQueue()
        self._storage = storage_at(self._location, inbox, self._settings)
        epoch = self._storage.acquire()
        try:
            records, damage = self._storage.open()
            known = self._known_identity(records)
            self._id = id_of(known)
            self._storage.settle(self._id)
            definition = self._definition
            if known is not None:
                definition = replace(definition, prefix=known["prefix"], seed=known["seed"])
            elif not definition.prefix:
                definition = definition.drawn()
            self._experiment = self._machine(definition)
            driver = self._driver = self._make_driver(definition, inbox, engine)
            driver.replay(records)
            self._check_configs()
            self._identify(definition, known)
            for found in damage:
                self._listeners.warn(f"{found.path} is damaged ({found.where}): {found.what}")
            driver.begin(epoch)
            if self._asked is not None:
                driver.ask_to_stop(*self._asked)
        except BaseException:
            with contextlib.suppress(StorageError, OSError):
                self._storage.close(False)
            self._storage.release()
            raise
        try:
            return driver.run()
        finally:
            self._records = self._storage.records
            self._storage.release()

    def demand(self) -> Demand:
        """What is asked of a cluster: room for trials, as they need it."""
        return Demand(0, 0, runtime_env=self._definition.run_config.worker_runtime_env, by_request=True)

    def read(self) -> None:
        """The experiment as it is, without changing it."""
        records = read_records(self._location)
        self._experiment = self._machine(self._definition)
        replay(self._experiment, records, self._definition.param_space)
        self._records = lambda: records

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._asked = number, at_once
        if self._driver is not None:
            self._driver.ask_to_stop(number, at_once)

    @property
    def signal(self) -> int | None:
        return self._driver.signal if self._driver is not None else None

    @property
    def failed_fast(self) -> str | None:
        return self._driver.failed_fast if self._driver is not None else None

    def results(self) -> ResultGrid:
        results = TrialResults(self._experiment, self._records)
        return ResultGrid(
            results,
            experiment_path=str(self._location),
            metric=self._definition.tune_config.metric,
            mode=self._definition.tune_config.mode,
            statuses=results.statuses,
            reports=results.rows,
            filesystem=self._location.filesystem,
        )

    def _known_identity(self, records: list[Record]) -> dict[str, Any] | None:
        try:
            identity: dict[str, Any] = self._storage.read_identity()
        except StorageUnavailableError:
            raise
        except StorageError:
            copy = next((record.body for record in reversed(records) if record.kind == IDENTITY), None)
            if copy is None and any(record.kind in KINDS for record in records):
                raise
            if copy is None:
                return None  # nothing has been begun yet
            identity = copy
        if identity.get("kind") != KIND:
            raise TuneError(f"{self._location} is a training run, not an experiment: give another RunConfig(name=...)")
        return identity

    def _identify(self, definition: Definition, known: dict[str, Any] | None) -> None:
        identity = {**definition.identity(), "id": self._id}
        if known != identity:
            self._storage.write_identity(identity)
            self._storage.write([(IDENTITY, identity)], lambda: None)

    def _machine(self, definition: Definition) -> Experiment:
        config = definition.tune_config
        spec = Spec(
            metric=config.metric,
            mode=config.mode,
            num_samples=config.num_samples,
            naming=TrialNames(
                definition.prefix, definition.trainable_name, config.trial_name_creator, config.trial_dirname_creator
            ),
            resources_of=self._bundles,
            fail_fast=bool(definition.run_config.failure_config.fail_fast),
            host=definition.host,
        )
        searcher, scheduler = definition.searcher(), definition.scheduler()
        stopper = definition.stopper
        self._stopper_is_none = isinstance(stopper, NoopStopper)
        self._scheduler = scheduler
        where = (self._location, definition.param_space)
        return Experiment(spec, *where, searcher, scheduler, stopper, {"CPU": float(os.cpu_count() or 1)})

    def _make_driver(self, definition: Definition, inbox: Inbox, engine: Any) -> ExperimentDriver:
        run, config = definition.run_config, definition.tune_config
        self._configured = self._configure(run)
        logs = self._storage.home.root / "trials"
        far = (self._location, logs, self._settings.storage_patience_s)
        self._listeners = Listeners(
            [*_callbacks(run), *_default_loggers(run)],
            run.progress_reporter,
            str(logs),
            display=_display(run, self._settings),
            artifacts=Artifacts(*far) if self._storage.remote else None,
            quiet=run.verbose == 0,
            shows_output=run.verbose not in (0, 1),
            total_samples=definition.total_samples,
            num_samples=config.num_samples,
            budget_s=config.budget_s,
        )
        driver = ExperimentDriver(
            self._experiment,
            self._storage,
            inbox,
            engine,
            self._settings,
            self._listeners,
            space=definition.param_space,
            plan_of=self._plan,
            configure=self._configured,
            resumption=self._resumption,
            max_concurrent=config.max_concurrent_trials or 0,
            score_attribute=run.checkpoint_config.checkpoint_score_attribute,
            placement_of=self._placement,
            expected=definition.total_samples if definition.knows_samples else math.inf,
        )
        self._experiment.stopper.use_clock(driver.elapsed)
        return driver

    def _check_configs(self) -> None:
        """What was not stored must be passed again before a trial that has it can go on."""
        for trial in self._experiment.get_live_trials():
            missing = missing_in(trial.config)
            if missing:
                raise TuneError(
                    f"the config of {trial} has {', '.join(missing)}, which cannot be stored (an object, a function or "
                    "a reference of an earlier session): pass it again with Tuner.restore(..., param_space=...)"
                )

    # How a trial runs

    def _bundles(self, config: dict[str, Any]) -> list[dict[str, float]]:
        if isinstance(self._trainable, DataParallelTrainer):
            return trainer_resources(self._trainable, config).bundles
        return resources_of(self._trainable, config).bundles

    def _placement(self, trial: Trial) -> BundlePlacement:
        if not isinstance(self._trainable, DataParallelTrainer):
            request = resources_of(self._trainable, trial.config)
            return BundlePlacement(request.strategy, tuple(request.options.get("bundle_label_selector") or ()))
        asked = demand_of(trial_trainer(self._trainable, trial.config).scaling_config, self._definition.run_config)
        labels = tuple(asked.labels_of(number) for number in range(len(trial.resources))) if asked.labels else ()
        known = {name for bundle in trial.resources for name in bundle}
        besides = {name: amount for name, amount in asked.resources.items() if name not in known}
        return BundlePlacement(asked.strategy, labels, besides)

    @property
    def _lockstep(self) -> bool:
        return not (type(self._scheduler) is FIFOScheduler and self._stopper_is_none)

    def _plan(self, trial: Trial) -> Plan:
        missing = missing_in(trial.config)
        if missing:
            raise TuneError(f"{', '.join(missing)} of its config was not stored: pass param_space again to restore it")
        location = self._experiment.home_of(trial)
        trainer = self._trainer(trial)
        about = {
            "id": trial.trial_id,
            "name": trial.name,
            "experiment": self._definition.run_config.name,
            "resources": total(trial.resources),
        }
        plan = trainer._plan(location, self._settings, identified=False)
        metadata = {**plan.metadata, TRIAL: about}
        how = "use Tuner.restore(..., resume_errored=True)"
        return replace(
            plan,
            name=trial.name,
            display="off",
            lockstep=self._lockstep,
            metadata=metadata,
            how_to_go_on=how,
            like=self._configured,
        )

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
        return DataParallelTrainer(self._entry, train_loop_config=trial.config, scaling_config=scaling, run_config=own)

    def _sent(self) -> PickledTrainable | None:
        """What trials run, if it is the same for all."""
        if isinstance(self._trainable, DataParallelTrainer):
            return None
        run = self._definition.run_config
        scheduler = self._definition.tune_config.scheduler
        may_pause = scheduler is not None and type(scheduler) not in _NEVER_PAUSE
        return PickledTrainable(entry_of(self._trainable, run.checkpoint_config, run.stop, may_pause=may_pause))

    def _configure(self, run: RunConfig) -> Any:
        plan = Plan(
            name=run.name,
            location=self._location,
            spec=RunSpec(),
            payload=b"",
            identity={},
            essential=("holdfast.train.payload", "holdfast.train.api", "holdfast.tune.trainable"),
            preload=tuple(run.preload),
        )
        return configured_for(configuration(plan, self._settings, b""), self._storage)


def _callbacks(run: RunConfig) -> list[Callback]:
    return [callback for callback in run.callbacks if isinstance(callback, Callback)]


def _default_loggers(run: RunConfig) -> list[Callback]:
    """JSON, CSV and TensorBoard, unless the script has them or the environment says no."""
    if not is_local_logging_wanted():
        return []
    given = run.callbacks
    return [mine for mine in default_loggers() if not any(isinstance(callback, type(mine)) for callback in given)]


def _display(run: RunConfig, in_force: settings.Settings) -> TrialsDisplay | None:
    """None where the script has a reporter of its own, or wants silence."""
    if run.progress_reporter is not None or run.verbose == 0:
        return None
    return make_display(in_force.display)
