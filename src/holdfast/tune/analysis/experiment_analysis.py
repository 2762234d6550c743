"""``ExperimentAnalysis``: what ``tune.run`` returns, and what reads a stored experiment without its trainable."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from holdfast.core.metric_names import TRAINING_ITERATION, flat_items, lookup, number
from holdfast.errors import NoExperimentError, NotARunError
from holdfast.printable import encodable_row
from holdfast.runs.stored_experiment import StoredExperiment, open_stored
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.tune.experiment.trial_results import StoredTrials, TrialResults
from holdfast.tune.result_grid import SCOPES, best_report, check_mode
from holdfast.tune.result_metrics import DEFAULT_METRIC

from .analysed_trial import AnalysedTrial

log = logging.getLogger(__name__)


class ExperimentAnalysis:
    """The trials of an experiment, read from its directory or URL. The experiment may be running, finished, moved or
    copied.

    ``default_metric`` and ``default_mode`` define the best trial where a method is given none. By default they are
    those that the experiment was started with. Objects in configs are not stored; only the return value of ``tune.run``
    has them.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: Any = None,
        trials: Sequence[AnalysedTrial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        if default_mode is not None:
            check_mode("ExperimentAnalysis(default_mode", default_mode)
        path = os.fspath(experiment_checkpoint_path)
        path = os.path.dirname(path) if path.endswith(".json") else path  # Ray's experiment_state.json in it
        self._location = Location.parse("ExperimentAnalysis(experiment_checkpoint_path", path, storage_filesystem)
        self.default_metric, self.default_mode = default_metric, default_mode
        if trials is None:
            trials = self._load()
        if self.default_metric is None and self.default_mode is not None:
            self.default_metric = DEFAULT_METRIC
        self.trials: list[AnalysedTrial] = list(trials)

    @classmethod
    def of_results(cls, results: TrialResults, location: Location, metric: str | None, mode: str | None) -> Any:
        """The analysis of an experiment that has just ended in this process."""
        return cls(
            str(location),
            storage_filesystem=location.filesystem,
            trials=_trials(results),
            default_metric=metric,
            default_mode=mode,
        )

    def _load(self) -> list[AnalysedTrial]:
        try:
            stored = open_stored(self._location)
        except NotARunError as error:
            raise NoExperimentError(str(error)) from None
        if not isinstance(stored, StoredExperiment):
            raise ValueError(f"{self._location} is a run, not an experiment: use Result.from_path")
        identity = stored.known_identity()
        self.default_metric = self.default_metric or identity.get("metric")
        self.default_mode = self.default_mode or identity.get("mode")
        records = stored.records()
        return _trials(TrialResults(StoredTrials(self._location, stored.replay(records)), lambda: records))

    @property
    def experiment_path(self) -> str:
        """The experiment's directory or URL."""
        return str(self._location)

    # The best

    @property
    def best_trial(self) -> AnalysedTrial | None:
        self._need_defaults("best_trial")
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any] | None:
        self._need_defaults("best_config")
        return self.get_best_config()

    @property
    def best_logdir(self) -> str | None:
        self._need_defaults("best_logdir")
        return self.get_best_logdir()

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        return self.get_best_checkpoint(self._best("best_checkpoint"))

    @property
    def best_dataframe(self) -> Any:
        return self.trial_dataframes[self._best("best_dataframe").trial_id]

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return dict(self._best("best_result").last_result)

    @property
    def best_result_df(self) -> Any:
        row = encodable_row(flat_items(self.best_result))
        return _pandas("best_result_df").DataFrame.from_records([row], index="trial_id")

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> AnalysedTrial | None:
        """Return the trial with the highest ("max") or lowest ("min") ``metric``; None if no trial has it.

        ``scope`` says which value of a trial is compared: its "last" one, the average of all ("avg"), of the last 5 or
        10 ("last-5-avg", "last-10-avg"), or its best ("all"). Trials whose value is NaN or infinite are ignored, unless
        ``filter_nan_and_inf`` is False.
        """
        if len(self.trials) == 1:
            return self.trials[0]
        metric, mode = self._metric(metric), self._mode(mode)
        if scope not in SCOPES:
            raise ValueError(f"get_best_trial(scope={scope!r}): use one of {', '.join(SCOPES)}")
        found = [
            (trial.metric_analysis[metric][mode if scope == "all" else scope], trial)
            for trial in self.trials
            if metric in trial.metric_analysis
        ]
        usable = [(value, trial) for value, trial in found if math.isfinite(value) or not filter_nan_and_inf]
        if not usable:
            log.warning("No trial is the best: none has a number as %r.", metric)
            return None
        return (max if mode == "max" else min)(usable, key=lambda pair: pair[0])[1]

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Return the configuration of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else dict(best.config)

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """Return the directory of the best trial."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.logdir

    def get_best_checkpoint(
        self, trial: AnalysedTrial | str, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Return the checkpoint with the best metric, of a trial or of the trial with that directory."""
        metric, mode = metric or self.default_metric or TRAINING_ITERATION, self._mode(mode)
        scored = [
            (value, checkpoint)
            for checkpoint, metrics in self._trial(trial).result.best_checkpoints
            if (value := number(lookup(metrics, metric))) is not None and not math.isnan(value)
        ]
        if not scored:
            log.error("The trial %s has no checkpoint with a number as %r.", trial, metric)
            return None
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]

    def get_last_checkpoint(
        self, trial: AnalysedTrial | str | None = None, metric: str = TRAINING_ITERATION, mode: str = "max"
    ) -> Checkpoint | None:
        """Return the newest checkpoint of a trial; without an argument, of the best trial."""
        found = trial or self.get_best_trial(metric, mode)
        return None if found is None else self._trial(found).checkpoint

    # All of them

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Return the config of each trial by its id. ``prefix`` makes names flat: "config/lr"."""
        return {t.trial_id: dict(flat_items(t.config, "config/")) if prefix else dict(t.config) for t in self.trials}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last result of each trial, by its id."""
        return {trial.trial_id: dict(trial.last_result) for trial in self.trials}

    @property
    def results_df(self) -> Any:
        rows = [encodable_row(flat_items(trial.last_result)) for trial in self.trials if trial.last_result]
        return _pandas("results_df").DataFrame.from_records(rows, index="trial_id" if rows else None)

    @cached_property
    def trial_dataframes(self) -> dict[str, Any]:
        """All reports of each trial, by its id, with its configuration in columns such as "config/lr"."""
        frame = _pandas("trial_dataframes").DataFrame
        return {t.trial_id: frame(list(_rows_of(t))) for t in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """Return a data frame with a row for each trial with reports: its last result, or the one with the best
        ``metric``.
        """
        if mode is not None:
            check_mode("dataframe(mode", mode)
            if metric is None:
                raise ValueError(f"dataframe(mode={mode!r}): pass metric too")
        rows = []
        for trial in self.trials:
            report = best_report(trial.rows, metric, mode) if metric and mode else None
            report = report or (trial.rows[-1] if trial.rows else None)
            if report is not None:
                config = flat_items(trial.config, "config/")
                rows.append(encodable_row([*flat_items(report), *config, ("logdir", trial.logdir)]))
        return _pandas("dataframe").DataFrame(rows)

    def _best(self, name: str) -> AnalysedTrial:
        self._need_defaults(name)
        best = self.get_best_trial()
        if best is None:
            raise ValueError(f"{name}: no trial has a number as {self.default_metric!r}")
        return best

    def _need_defaults(self, name: str) -> None:
        if not self.default_metric or not self.default_mode:
            raise ValueError(f"{name}: pass metric and mode to tune.run, or use get_{name}(metric, mode)")

    def _trial(self, given: AnalysedTrial | str) -> AnalysedTrial:
        if isinstance(given, AnalysedTrial):
            return given
        found = next((trial for trial in self.trials if given in (trial.logdir, trial.trial_id, str(trial))), None)
        if found is None:
            raise ValueError(f"{self.experiment_path} has no trial {given!r}")
        return found

    def _metric(self, metric: str | None) -> str:
        if not metric and not self.default_metric:
            raise ValueError("metric=None: pass it here, or to tune.run")
        return str(metric or self.default_metric)

    def _mode(self, mode: str | None) -> str:
        if not mode and not self.default_mode:
            raise ValueError("mode=None: pass it here, or to tune.run")
        check_mode("mode", str(mode or self.default_mode))
        return str(mode or self.default_mode)


def _rows_of(trial: AnalysedTrial) -> Iterator[dict[str, Any]]:
    config = list(flat_items(trial.config, "config/"))
    for row in trial.rows:
        yield encodable_row([*flat_items(row), *config])


def _trials(results: TrialResults) -> list[AnalysedTrial]:
    return [AnalysedTrial(trial, home, result, results.rows(result)) for trial, home, result in results.with_trials()]


def _pandas(name: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"ExperimentAnalysis.{name} needs pandas: run pip install 'holdfast[dataframe]'") from error
    return pandas
