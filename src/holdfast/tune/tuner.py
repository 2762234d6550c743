"""``Tuner``: turns the script's arguments into an experiment, lets its driver run it, and returns the results."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast import settings, wrapper
from holdfast.core.experiment.resumption import Resumption
from holdfast.driver import stop_requests
from holdfast.engine import choose
from holdfast.errors import NoExperimentError, NotARunError, StorageError, StorageUnavailableError, TuneError
from holdfast.platform import interrupt, open_files
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.trackers.notification import notifying
from holdfast.train.checks import WrongTypeError
from holdfast.train.config import RunConfig, unique_name
from holdfast.train.fresh_start import check_not_fresh, start_fresh
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.analysis import ExperimentAnalysis
from holdfast.tune.experiment.code_fingerprint import fingerprint
from holdfast.tune.experiment.definition import (
    KIND,
    Definition,
    restored,
)
from holdfast.tune.experiment.experiment_session import ExperimentSession
from holdfast.tune.experiment.same_experiment import keys_of
from holdfast.tune.progress_reporter import ProgressReporter
from holdfast.tune.registry import check_trainable, get_trainable, name_of
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.trainable import check_ray_data, check_refs, with_scaling_fields
from holdfast.tune.tune_config import ResumeConfig, TuneConfig
from holdfast.tune.unused_options import warn_unused_in_tuning


class Tuner:
    """Runs trials of ``trainable`` with configurations from ``param_space``.

    The same (storage_path, name) resumes an experiment whose driver was stopped or killed. If the experiment has
    finished, ``fit()`` says so and returns its results. If the stored experiment has another search space, it raises
    ``TuneError``.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        wrapper.in_force().check_experiment()
        if isinstance(trainable, str):
            trainable = get_trainable(trainable)
        if isinstance(trainable, DataParallelTrainer):
            run_config = run_config or trainable.run_config
        else:
            check_trainable(trainable)
        if param_space is not None and not isinstance(param_space, Mapping):
            raise WrongTypeError(f"Tuner(param_space={param_space!r}): pass a dict")
        if tune_config is not None and not isinstance(tune_config, TuneConfig):
            raise WrongTypeError(f"Tuner(tune_config={tune_config!r}): pass a holdfast.tune.TuneConfig")
        if run_config is not None and not isinstance(run_config, RunConfig):
            raise WrongTypeError(f"Tuner(run_config={run_config!r}): pass a holdfast.tune.RunConfig")
        if run_config is not None:
            _check_listeners(run_config)
        self._trainable = trainable
        param_space = with_scaling_fields(dict(param_space or {}))
        if isinstance(param_space.get("run_config"), RunConfig):
            raise ValueError(
                "Tuner(param_space={'run_config': ...}): a RunConfig is for all trials; pass it as run_config"
            )
        where = tune_config or TuneConfig(), _named(run_config or RunConfig(), trainable)
        self._definition = Definition(name_of(trainable), param_space, *where, code=fingerprint(trainable))
        self._resumption = Resumption()
        self._results: ResultGrid | None = None
        self._is_restored = False

    def fit(self) -> ResultGrid:
        """Run all trials until they finish. The result of a failed trial holds its error.
        ``FailureConfig(fail_fast=...)`` stops at the first one.
        """
        check_refs(self._definition.param_space)
        start_fresh(self._definition.run_config, "experiment")
        location = self._definition.run_config.location
        in_force = settings.load()
        what = (self._trainable, self._definition, location, in_force, self._resumption)
        session = ExperimentSession(*what, is_chosen=self._is_restored)
        wanted = self._definition.run_config.engine or in_force.engine
        given = (self._trainable, self._definition.tune_config, self._definition.run_config)
        warn_unused_in_tuning(*given, on_ray=wanted == "ray")
        check_ray_data(self._trainable, self._definition.param_space, on_ray=wanted == "ray")
        engine = choose(wanted, in_process=False, demand=session.demand())
        logging_config = self._definition.run_config.logging_config
        session.prepare(engine)
        with (
            interrupt.held(),
            open_files.limit_raised(),
            logging_config.in_force(),
            notifying(in_force.notify, "experiment", location) as notify,
            stop_requests.watched(location, session.ask_to_stop),
        ):
            try:
                outcome = engine.host(lambda: session.run(engine), session.ask_to_stop)
            except Exception as met:
                if not open_files.is_at_limit(met):
                    raise
                raise TuneError(f"{met}. {open_files.remedy(met)}. {self._how_to_resume()}") from met
            notify(outcome, "")
        self._results = session.results()
        if session.failed_fast is not None and self._definition.run_config.failure_config.fail_fast:
            error = next((r.error for r in self._results if r.error is not None), None)
            if str(self._definition.run_config.failure_config.fail_fast).lower() == "raise" and error is not None:
                raise error
            return self._results
        if outcome == "stopped":
            if session.signal not in (None, signal.SIGINT):
                raise SystemExit(128 + int(session.signal or 0))
            raise KeyboardInterrupt(f"the experiment was stopped. {self._how_to_resume()}")
        return self._results

    def get_results(self) -> ResultGrid:
        """Return the results so far, of the last ``fit()`` or of the restored experiment."""
        if self._results is not None:
            return self._results
        if not self._is_restored:
            raise RuntimeError(
                "Tuner.get_results(): call fit() first, or Tuner.restore(path, trainable) to read stored ones"
            )
        location = self._definition.run_config.location
        session = ExperimentSession(self._trainable, self._definition, location, settings.load(), self._resumption)
        session.read()
        return session.results()

    def _how_to_resume(self) -> str:
        run = self._definition.run_config
        again = "" if run.fresh else "run the same command again, or "
        return f"To resume, {again}use Tuner.restore({str(run.location)!r}, trainable=...)"

    def _analysis(self) -> ExperimentAnalysis:
        """What ``tune.run`` returns of the last ``fit()``."""
        assert self._results is not None
        config, location = self._definition.tune_config, self._definition.run_config.location
        results: Any = self._results._results
        found: ExperimentAnalysis = ExperimentAnalysis.of_results(results, location, config.metric, config.mode)
        return found

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
        """Return the tuner of an existing experiment, to resume it.

        User code is never stored, so pass the trainable again. Values in ``tune_config`` and ``run_config`` replace the
        stored ones: more samples, another stop criterion, another concurrency.
        """
        check_not_fresh(run_config, "Tuner.restore")
        location = Location.parse("Tuner.restore(path", path, storage_filesystem)
        identity = _identity(location)
        if resume_errored and restart_errored:
            raise ValueError("Tuner.restore(): pass either resume_errored=True or restart_errored=True, not both")
        if trainable is None:
            raise ValueError("Tuner.restore(path, trainable=...): pass the trainable, because code is not stored")
        if param_space is not None:
            param_space = with_scaling_fields(dict(param_space))
            _check_same_keys(identity, param_space)
        definition = restored(identity, location, param_space, tune_config, run_config)
        tuner = cls(
            trainable,
            param_space=definition.param_space,
            tune_config=definition.tune_config,
            run_config=definition.run_config,
        )
        if name_of(tuner._trainable) != identity["trainable"]:
            raise ValueError(
                f"Tuner.restore(trainable={name_of(tuner._trainable)}): the experiment was started with "
                f"{identity['trainable']!r}; pass that one"
            )
        tuner._definition = replace(definition, code=tuner._definition.code)
        errored = "resume" if resume_errored else "restart" if restart_errored else "skip"
        resume = _resume_config or ResumeConfig(
            unfinished=ResumeConfig.ResumeType("resume" if resume_unfinished else "skip"), errored=errored
        )
        tuner._resumption = Resumption(*(str(getattr(getattr(resume, n), "value", getattr(resume, n))) for n in _KINDS))
        tuner._is_restored = True
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether the path holds an experiment that ``restore`` can resume."""
        try:
            _identity(Location.parse("Tuner.can_restore(path", path, storage_filesystem))
        except StorageUnavailableError:
            raise  # it is unknown whether one exists, and starting again would be wrong
        except StorageError:
            return False
        return True


_KINDS = ("unfinished", "errored", "finished")


def _identity(location: Location) -> dict[str, Any]:
    wrapper.in_force().check_experiment()
    try:
        identity = StoredRun(location).identity()
    except NotARunError as error:
        raise NoExperimentError(str(error)) from None
    if identity.get("kind") != KIND:
        raise NoExperimentError(f"{location} is a training run, not an experiment: use the trainer's restore")
    return identity


def _named(run: RunConfig, trainable: Any) -> RunConfig:
    """Without a name, each Tuner has an experiment of its own, named after the trainable."""
    if run.has_own_name or isinstance(trainable, DataParallelTrainer):
        return run
    named = copy.copy(run)
    named.name = named.chosen_name = unique_name(name_of(trainable))
    return named


def _check_listeners(run: RunConfig) -> None:
    for callback in run.callbacks:
        if isinstance(callback, type):
            raise WrongTypeError(f"RunConfig(callbacks=[{callback.__name__}]): pass an instance, not the class")
    if run.progress_reporter is not None and not isinstance(run.progress_reporter, ProgressReporter):
        raise WrongTypeError(
            f"RunConfig(progress_reporter={run.progress_reporter!r}): pass an instance of tune.CLIReporter, or of a "
            "subclass of tune.ProgressReporter"
        )


def _check_same_keys(identity: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Earlier versions stored only the keys at the top."""
    known = identity.get("keys") or identity["stored"].get("param_space")
    given = keys_of(space) if "keys" in identity else set(space)
    if known is None or set(known) == given:
        return
    lost, new = sorted(set(known) - given), sorted(given - set(known))
    said = "; ".join(f"{what}: {', '.join(keys)}" for what, keys in (("missing", lost), ("new", new)) if keys)
    raise ValueError(
        f"Tuner.restore(param_space=...): it must have the same keys as the original ({said}). Only objects and "
        "references are taken from it; hyperparameters of existing trials do not change"
    )
