"""One driver's work on an experiment: its storage, its state, its loop, and how its trials run."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
from dataclasses import replace
from typing import Any

from holdfast import settings
from holdfast.core.experiment.events import KINDS
from holdfast.core.experiment.resumption import Resumption
from holdfast.core.experiment.trial import ERROR, TERMINATED
from holdfast.driver.storage_place import storage_at
from holdfast.engine.demand import Demand
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.initial import local_resources
from holdfast.errors import StorageError, StorageUnavailableError, TuneError
from holdfast.objects.object_refs import open_session
from holdfast.printable import printable_lines
from holdfast.runs.past import IDENTITY
from holdfast.runs.stored_run import StoredRun
from holdfast.store import values
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.runfile import id_of
from holdfast.trackers.trial_callback import Callback
from holdfast.train.config import RunConfig
from holdfast.train.ray_variables import TUNE_CALLBACKS, callbacks_in
from holdfast.tune.experiment.artifacts import Artifacts
from holdfast.tune.experiment.definition import (
    KIND,
    Definition,
    is_local_logging_wanted,
)
from holdfast.tune.experiment.experiment_driver import ExperimentDriver
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.live_experiment import ExperimentSpec, LiveExperiment
from holdfast.tune.experiment.restore import replay
from holdfast.tune.experiment.same_experiment import check_same, finished_text, resumed_text
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.stored_definition import missing_in
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.experiment.trial_results import TrialResults
from holdfast.tune.experiment.trial_runtime import SharedByTrials, TrialRuntime
from holdfast.tune.experiment.trial_storage import JournalBatch
from holdfast.tune.experiment.trials_display import TrialsDisplay
from holdfast.tune.experiment.trials_display import make as make_display
from holdfast.tune.experiment.user_policy import UserPolicy
from holdfast.tune.logger import default_loggers
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.stopper import Stopper


class ExperimentSession:
    """One driver's work on an experiment."""

    def __init__(
        self,
        trainable: Any,
        definition: Definition,
        location: Location,
        in_force: settings.Settings,
        resumption: Resumption,
        *,
        is_chosen: bool = False,
    ) -> None:
        """``is_chosen``: the user chose the stored experiment explicitly, not only by the same name."""
        self._definition, self._location = definition, location
        self._settings, self._resumption = in_force, resumption
        self._driver: ExperimentDriver | None = None
        self._runtime = TrialRuntime(trainable, definition, location, in_force)
        self._asked: tuple[int, bool] | None = None
        self._is_chosen = is_chosen

    def prepare(self, engine: Any) -> None:
        engine.check(0.0)  # connects to a cluster, so that references that are sent now are valid there
        open_session()
        self._runtime.prepare()

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
            self._experiment = self._live(definition)
            driver = self._driver = self._make_driver(definition, inbox, engine)
            driver.replay(records)
            identity = {**definition.identity(), "id": self._id}
            if known is not None and not self._is_chosen:
                self._check_same(known, identity)
            self._check_configs()
            self._renew_resources()
            self._identify(identity, known)
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
            self._hand_back()
            self._records = self._storage.records
            self._storage.release()

    def _hand_back(self) -> None:
        """Copies the state back: the script looks at the searcher, scheduler and stopper that it passed, and not at the
        copies that were used."""
        config, policy, stop = self._definition.tune_config, self._experiment.policy, self._definition.run_config.stop
        for given, worked in ((config.search_alg, policy.searcher), (config.scheduler, policy.scheduler)):
            if given is not None:
                given.take_state_of(worked)
        if isinstance(stop, Stopper) and type(stop) is type(policy.stopper):
            stop.take_state_of(policy.stopper)

    def demand(self) -> Demand:
        """The request to a cluster: resources for trials, as they need them."""
        env, idle_s = self._definition.run_config.worker_runtime_env, self._settings.idle_node_s
        return Demand(0, 0, runtime_env=env, by_request=True, idle_s=idle_s)

    def read(self) -> None:
        """Read the experiment without changing it."""
        records = StoredRun(self._location).records()
        self._experiment = self._live(self._definition)
        replay(self._experiment, records)
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
            filesystem=self._location,
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
                return None  # nothing has been started yet
            identity = copy
        if identity.get("kind") != KIND:
            raise TuneError(
                f"{self._location} is a training run, not an experiment. Choose another RunConfig(name=...)."
            )
        return identity

    def _identify(self, identity: dict[str, Any], known: dict[str, Any] | None) -> None:
        if known != identity:
            self._storage.write_identity(identity)
            self._storage.write([(IDENTITY, identity)], lambda: None)

    def _live(self, definition: Definition) -> LiveExperiment:
        config = definition.tune_config
        spec = ExperimentSpec(
            metric=config.metric,
            mode=config.mode,
            num_samples=config.num_samples,
            max_concurrent=config.max_concurrent_trials or 0,
            fail_fast=bool(definition.run_config.failure_config.fail_fast),
            host=definition.host,
            total_resources={"CPU": float(os.cpu_count() or 1), **local_resources()},
        )
        creators = config.trial_name_creator, config.trial_dirname_creator
        policy = UserPolicy(
            definition.searcher(),
            definition.scheduler(),
            definition.stopper,
            definition.param_space,
            TrialNames(definition.prefix, definition.trainable_name, *creators),
            self._runtime.bundles_of,
            config.metric,
        )
        return LiveExperiment(spec, self._location, policy)

    def _make_driver(self, definition: Definition, inbox: Inbox, engine: Any) -> ExperimentDriver:
        run, config = definition.run_config, definition.tune_config
        logs = self._storage.home.root / "trials"
        far = (self._location, logs, self._settings.storage_patience_s)
        self._listeners = Listeners(
            [*_callbacks(run), *_default_loggers(run)],
            run.progress_reporter,
            str(logs),
            display=_display(run, self._settings),
            artifacts=Artifacts(*far) if self._storage.files.are_uploaded else None,
            quiet=run.verbose == 0,
            shows_output=run.verbose not in (0, 1),
            total_samples=definition.total_samples,
            num_samples=config.num_samples,
            budget_s=config.budget_s,
        )
        self._runtime.open(self._storage)
        shared = SharedByTrials(
            SharedNodes(engine), JournalBatch(self._storage), inbox, self._settings, self._listeners
        )
        expected = definition.total_samples if definition.knows_samples else math.inf
        driver = ExperimentDriver(self._experiment, shared, self._runtime, self._resumption, expected)
        self._experiment.stopper.use_clock(driver.elapsed)
        return driver

    def _check_same(self, known: dict[str, Any], identity: dict[str, Any]) -> None:
        state = self._experiment.state
        given = values.decode(values.encode(identity))
        differences = check_same(known, given, str(self._location), state.is_over)
        name = self._definition.run_config.name
        if differences:
            self._listeners.warn(resumed_text(name, differences))
        elif state.is_over:
            failed = sum(trial.status == ERROR for trial in state.trials.values())
            text = finished_text(name, str(self._location), len(state.trials), failed)
            print(f"holdfast: {printable_lines(text)}", file=sys.stderr, flush=True)

    def _renew_resources(self) -> None:
        """A restore may have passed other resources: trials that have not finished get them, as new ones do."""
        for trial in self._experiment.state.trials.values():
            if trial.status != TERMINATED and not trial.resized and not missing_in(trial.config):
                trial.resources = self._runtime.bundles_of(trial.config)

    def _check_configs(self) -> None:
        """Objects that were not stored must be passed again before their trial can continue."""
        for trial in self._experiment.get_live_trials():
            missing = missing_in(trial.config)
            if missing:
                raise TuneError(
                    f"the config of {trial} has {', '.join(missing)}, which cannot be stored (an object, a function or "
                    "a reference of an earlier session): pass it again with Tuner.restore(..., param_space=...)"
                )


def _callbacks(run: RunConfig) -> list[Callback]:
    given = [callback for callback in run.callbacks if isinstance(callback, Callback)]
    return [*given, *callbacks_in(TUNE_CALLBACKS, Callback)]


def _default_loggers(run: RunConfig) -> list[Callback]:
    """JSON, CSV and TensorBoard, unless the script has them or the environment says no."""
    if not is_local_logging_wanted():
        return []
    given = run.callbacks
    return [mine for mine in default_loggers() if not any(isinstance(callback, type(mine)) for callback in given)]


def _display(run: RunConfig, in_force: settings.Settings) -> TrialsDisplay | None:
    """The display; None if the script has its own reporter or wants no output."""
    if run.progress_reporter is not None or run.verbose == 0:
        return None
    return make_display(in_force.display)
