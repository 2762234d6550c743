"""``Tuner``: turns what the script says into an experiment, lets its driver run it, and gives the results."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast import settings
from holdfast.core.state import RunSpec
from holdfast.driver.fleet import configuration
from holdfast.driver.history import read_identity, read_records
from holdfast.driver.plan import Plan
from holdfast.driver.recovery import IDENTITY
from holdfast.driver.remote_storage import RemoteStorage, scratch_of
from holdfast.driver.storage import DiskStorage
from holdfast.engine import choose
from holdfast.engine.base import Inbox
from holdfast.engine.demand import Demand
from holdfast.errors import NotARunError, StorageError, StorageUnavailableError, TuneError
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.train.config import RunConfig
from holdfast.train.context import TRIAL
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.callback import Callback
from holdfast.tune.experiment.artifacts import Artifacts
from holdfast.tune.experiment.audience import Audience
from holdfast.tune.experiment.definition import (
    KIND,
    Definition,
    is_local_logging_wanted,
    restored,
    scaling_of,
)
from holdfast.tune.experiment.display import TrialsDisplay
from holdfast.tune.experiment.display import make as make_display
from holdfast.tune.experiment.events import KINDS
from holdfast.tune.experiment.loop import ExperimentDriver, Resumption
from holdfast.tune.experiment.machine import Experiment, Spec
from holdfast.tune.experiment.naming import Naming
from holdfast.tune.experiment.replaying import replay
from holdfast.tune.experiment.results import Results
from holdfast.tune.experiment.sent import Sent
from holdfast.tune.experiment.stored import missing_in
from holdfast.tune.experiment.trial import Trial
from holdfast.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from holdfast.tune.registry import check_trainable, get_trainable
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
)
from holdfast.tune.stopper import NoopStopper
from holdfast.tune.trainable import check_refs, entry_of, resources_of, trainer_resources, trial_trainer
from holdfast.tune.tune_config import ResumeConfig, TuneConfig
from holdfast.wire.objects.refs import open_session

_MOST_AT_ONCE = 256  # trials that a cluster is asked for, if nothing else limits them
_NEVER_PAUSE = (FIFOScheduler, AsyncHyperBandScheduler, ASHAScheduler, MedianStoppingRule)


class Tuner:
    """Runs trials of ``trainable`` with configurations from ``param_space``. The same (storage_path, name) goes on with
    an experiment whose driver was stopped or killed."""

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        if isinstance(trainable, str):
            trainable = get_trainable(trainable)
        if isinstance(trainable, DataParallelTrainer):
            run_config = run_config or trainable.run_config
        else:
            check_trainable(trainable)
        if param_space is not None and not isinstance(param_space, Mapping):
            raise TypeError(f"Tuner(param_space={param_space!r}): pass a dict")
        if tune_config is not None and not isinstance(tune_config, TuneConfig):
            raise TypeError(f"Tuner(tune_config={tune_config!r}): pass a holdfast.tune.TuneConfig")
        if run_config is not None and not isinstance(run_config, RunConfig):
            raise TypeError(f"Tuner(run_config={run_config!r}): pass a holdfast.tune.RunConfig")
        self._trainable = trainable
        where = tune_config or TuneConfig(), run_config or RunConfig()
        self._definition = Definition(_name_of(trainable), dict(param_space or {}), *where)
        self._resumption = Resumption()
        self._results: ResultGrid | None = None
        self._is_restored = False

    def fit(self) -> ResultGrid:
        """Run all trials to their ends. A trial that fails has its error in the results; see ``FailureConfig`` for
        ``fail_fast``."""
        check_refs(self._definition.param_space)
        location = self._definition.run_config.location
        in_force = settings.load()
        session = _Session(self._trainable, self._definition, location, in_force, self._resumption)
        wanted = self._definition.run_config.engine or in_force.engine
        engine = choose(wanted, in_process=False, demand=session.demand())
        outcome = engine.host(lambda: session.run(engine), session.ask_to_stop)
        self._results = session.results()
        if session.failed_fast is not None and self._definition.run_config.failure_config.fail_fast:
            error = next((r.error for r in self._results if r.error is not None), None)
            if str(self._definition.run_config.failure_config.fail_fast).lower() == "raise" and error is not None:
                raise error
            return self._results
        if outcome == "stopped":
            if session.signal not in (None, signal.SIGINT):
                raise SystemExit(128 + int(session.signal or 0))
            raise KeyboardInterrupt(
                f"the experiment was stopped. To go on, run the same command again, or use "
                f"Tuner.restore({str(location)!r}, trainable=...)"
            )
        return self._results

    def get_results(self) -> ResultGrid:
        """The results as far as there are any: of the last ``fit()``, or of the experiment that was restored."""
        if self._results is not None:
            return self._results
        if not self._is_restored:
            raise RuntimeError("Tuner.get_results(): there are none before fit(); Tuner.restore() reads earlier ones")
        location = self._definition.run_config.location
        session = _Session(self._trainable, self._definition, location, settings.load(), self._resumption)
        session.read()
        return session.results()

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        *,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        _resume_config: ResumeConfig | None = None,
    ) -> Tuner:
        """The tuner of an existing experiment, to go on with it. User code is never stored, so the trainable is passed
        again. What is passed in ``tune_config`` and ``run_config`` takes the place of what was: more samples, another
        stop criterion, another concurrency."""
        location = Location.parse("Tuner.restore(path", path, storage_filesystem)
        identity = _identity(location)
        if resume_errored and restart_errored:
            raise ValueError("Tuner.restore(resume_errored=True, restart_errored=True): choose one of them")
        if trainable is None:
            raise ValueError("Tuner.restore(path, trainable=...): pass the trainable, no code is stored")
        if param_space is not None:
            _check_same_keys(identity, param_space)
        definition = restored(identity, location, param_space, tune_config, run_config)
        tuner = cls(
            trainable,
            param_space=definition.param_space,
            tune_config=definition.tune_config,
            run_config=definition.run_config,
        )
        if _name_of(tuner._trainable) != identity["trainable"]:
            raise ValueError(
                f"Tuner.restore(trainable={_name_of(tuner._trainable)}): the experiment was started with "
                f"{identity['trainable']!r}; pass that one"
            )
        tuner._definition = definition
        errored = "resume" if resume_errored else "restart" if restart_errored else "skip"
        resume = _resume_config or ResumeConfig(
            unfinished=ResumeConfig.ResumeType("resume" if resume_unfinished else "skip"), errored=errored
        )
        tuner._resumption = Resumption(*(str(getattr(getattr(resume, n), "value", getattr(resume, n))) for n in _KINDS))
        tuner._is_restored = True
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether the path holds an experiment that ``restore`` can go on with."""
        try:
            _identity(Location.parse("Tuner.can_restore(path", path, storage_filesystem))
        except StorageUnavailableError:
            raise  # whether there is one cannot be told, and to start anew for that would be wrong
        except StorageError:
            return False
        return True


_KINDS = ("unfinished", "errored", "finished")


class _Session:
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
        self._entry: Sent | None = None
        self._asked: tuple[int, bool] | None = None

    def run(self, engine: Any) -> str:
        open_session()
        inbox: Inbox = queue.SimpleQueue()
        self._storage = self._open_storage(inbox)
        epoch = self._storage.acquire()
        try:
            records, damage = self._storage.open()
            known = self._known_identity(records)
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
                self._audience.warn(f"{found.path} is damaged ({found.where}): {found.what}")
            driver.begin(epoch)
            if self._asked is not None:
                driver.ask_to_stop(*self._asked)
            return driver.run()
        finally:
            self._records = self._storage.records
            self._storage.release()

    def demand(self) -> Demand:
        """What is asked of a cluster: room for as many trials as may run at once."""
        config = self._definition.tune_config
        try:
            bundles = self._bundles({})
        except Exception:  # they depend on the config
            bundles = [{"CPU": 1.0}]
        most = config.max_concurrent_trials or min(self._definition.total_samples, _MOST_AT_ONCE)
        workers = max(1, int(most)) * len(bundles)
        env = self._definition.run_config.worker_runtime_env
        return Demand(least=1, most=workers, resources=bundles[0], runtime_env=env)

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
        results = Results(self._experiment, self._records)
        return ResultGrid(
            results,
            experiment_path=str(self._location),
            metric=self._definition.tune_config.metric,
            mode=self._definition.tune_config.mode,
            statuses=results.statuses,
            reports=results.rows,
            filesystem=self._location.filesystem,
        )

    def _open_storage(self, inbox: Inbox) -> DiskStorage | RemoteStorage:
        if self._location.path is not None:
            return DiskStorage(RunLayout(self._location.path), inbox, None)
        scratch = scratch_of(str(self._location), self._settings.scratch_dir)
        return RemoteStorage(self._location, scratch, inbox, None, self._settings.storage_patience_s)

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
        identity = definition.identity()
        if known != identity:
            self._storage.write_identity(identity)
        if known != identity:
            self._storage.write([(IDENTITY, identity)], lambda: None)

    def _machine(self, definition: Definition) -> Experiment:
        config = definition.tune_config
        spec = Spec(
            metric=config.metric,
            mode=config.mode,
            num_samples=config.num_samples,
            naming=Naming(
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
        total = definition.total_samples
        self._configured = self._configure(run)
        logs = self._storage.home.root / "trials"
        far = (self._location, logs, self._settings.storage_patience_s)
        self._audience = Audience(
            [*_callbacks(run), *_default_loggers(run)],
            run.progress_reporter,
            str(logs),
            display=_display(run, self._settings),
            artifacts=Artifacts(*far) if self._storage.remote else None,
            quiet=run.verbose == 0,
            shows_output=run.verbose not in (0, 1),
            total_samples=total,
            num_samples=config.num_samples,
            budget_s=config.budget_s,
        )
        driver = ExperimentDriver(
            self._experiment,
            self._storage,
            inbox,
            engine,
            self._settings,
            self._audience,
            space=definition.param_space,
            plan_of=self._plan,
            configure=self._configured,
            resumption=self._resumption,
            max_concurrent=config.max_concurrent_trials or 0,
            score_attribute=run.checkpoint_config.checkpoint_score_attribute,
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

    @property
    def _lockstep(self) -> bool:
        return not (type(self._scheduler) is FIFOScheduler and self._stopper_is_none)

    def _plan(self, trial: Trial) -> Plan:
        missing = missing_in(trial.config)
        if missing:
            raise TuneError(f"{', '.join(missing)} of its config was not stored: pass param_space again to restore it")
        location = self._experiment.home_of(trial)
        trainer = self._trainer(trial)
        total: dict[str, float] = {}
        for bundle in trial.resources:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        about = {
            "id": trial.trial_id,
            "name": trial.name,
            "experiment": self._definition.run_config.name,
            "resources": total,
        }
        plan = trainer.plan(location, self._settings, identified=False)
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
        checkpoint = run.checkpoint_config
        if isinstance(self._trainable, type) and not checkpoint.checkpoint_frequency and self._pauses:
            checkpoint = replace(checkpoint, checkpoint_frequency=1)
        if self._entry is None:
            self._entry = Sent(entry_of(self._trainable, checkpoint, run.stop))
        scaling = scaling_of([dict(bundle) for bundle in trial.resources])
        return DataParallelTrainer(self._entry, train_loop_config=trial.config, scaling_config=scaling, run_config=own)

    @property
    def _pauses(self) -> bool:
        """Whether the scheduler may want a trial to go on from a checkpoint later, or another one from its."""
        return type(self._scheduler) not in _NEVER_PAUSE

    def _configure(self, run: RunConfig) -> Any:
        root = self._storage.home.root
        plan = Plan(
            name=run.name,
            location=self._location,
            spec=RunSpec(),
            payload=b"",
            identity={},
            essential=("holdfast.train.payload", "holdfast.train.api", "holdfast.tune.trainable"),
            preload=tuple(run.preload),
        )
        return configuration(plan, self._settings, root.parent if self._storage.remote else root, b"")


def _identity(location: Location) -> dict[str, Any]:
    identity = read_identity(location)
    if identity.get("kind") != KIND:
        raise NotARunError(f"{location} is a training run, not an experiment: use the trainer's restore")
    return identity


def _name_of(trainable: Any) -> str:
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "".join(c if c.isalnum() or c in "_-" else "-" for c in str(name)) or "trainable"


def _callbacks(run: RunConfig) -> list[Callback]:
    return [callback for callback in run.callbacks if isinstance(callback, Callback)]


def _default_loggers(run: RunConfig) -> list[Callback]:
    """JSON, CSV and TensorBoard, unless the script has them or the environment says no."""
    if not is_local_logging_wanted():
        return []
    kinds = (JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback)
    return [kind() for kind in kinds if not any(isinstance(callback, kind) for callback in run.callbacks)]


def _display(run: RunConfig, in_force: settings.Settings) -> TrialsDisplay | None:
    """None where the script has a reporter of its own, or wants silence."""
    if run.progress_reporter is not None or run.verbose == 0:
        return None
    return make_display(in_force.display)


def _check_same_keys(identity: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    known = identity["stored"].get("param_space")
    if known is None or set(known) == set(space):
        return
    lost, new = sorted(set(known) - set(space)), sorted(set(space) - set(known))
    said = "; ".join(
        part
        for part in (f"missing: {', '.join(lost)}" if lost else "", f"new: {', '.join(new)}" if new else "")
        if part
    )
    raise ValueError(
        f"Tuner.restore(param_space=...): it must have the keys of the original one ({said}); only objects and "
        "references are taken from it, hyper-parameters of existing trials stay as they were"
    )
