"""``tune.run`` and ``tune.run_experiments``: the older way to start a search. Both are a ``Tuner`` underneath."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.errors import TuneError
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.config import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from holdfast.tune.analysis import ExperimentAnalysis
from holdfast.tune.analysis.analysed_trial import AnalysedTrial
from holdfast.tune.experiment.experiment_argument import Experiment
from holdfast.tune.progress_reporter import ProgressReporter
from holdfast.tune.schedulers import create_scheduler
from holdfast.tune.search import create_searcher
from holdfast.tune.trainable import with_resources
from holdfast.tune.trainable.export_formats import with_export
from holdfast.tune.tune_config import ResumeConfig, TuneConfig
from holdfast.tune.tuner import Tuner

log = logging.getLogger(__name__)
_RESUME, _RESTART, _SKIP = ResumeConfig.ResumeType.RESUME, ResumeConfig.ResumeType.RESTART, ResumeConfig.ResumeType.SKIP
_RESUMED = {  # what follows "AUTO+"
    "ERRORED": ResumeConfig(errored=_RESUME),
    "RESTART_ERRORED": ResumeConfig(errored=_RESTART),
    "ERRORED_ONLY": ResumeConfig(unfinished=_SKIP, errored=_RESUME),
    "RESTART_ERRORED_ONLY": ResumeConfig(unfinished=_SKIP, errored=_RESTART),
}


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: float | timedelta | None = None,
    config: dict[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    log_to_file: Any = False,
    trial_name_creator: Callable[[Any], str] | None = None,
    trial_dirname_creator: Callable[[Any], str] | None = None,
    sync_config: SyncConfig | None = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | os.PathLike[str] | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: bool | None = None,
    local_dir: str | None = None,
) -> ExperimentAnalysis:
    """Run all trials of a trainable until they finish, and return their results. ``Tuner`` is the newer interface.

    The arguments are those of ``TuneConfig``, ``RunConfig``, ``FailureConfig`` and ``CheckpointConfig``. ``restore`` is
    a checkpoint that every trial starts from. ``export_formats`` is passed to ``Trainable.export_model`` when a trial
    finishes. ``resume=True`` resumes the experiment of this name, and "AUTO" does so if there is one. "AUTO+ERRORED",
    "AUTO+RESTART_ERRORED" and the same with "_ONLY" also resume or restart failed trials. If a trial fails, it raises a
    ``TuneError`` after all trials, unless ``raise_on_failed_trial`` is False.
    """
    if not isinstance(run_or_experiment, Experiment):
        run_or_experiment = Experiment(
            name,
            run_or_experiment,
            stop=stop,
            time_budget_s=time_budget_s,
            config=config,
            resources_per_trial=resources_per_trial,
            num_samples=num_samples,
            storage_path=storage_path,
            storage_filesystem=storage_filesystem,
            sync_config=sync_config,
            checkpoint_config=checkpoint_config
            or _checkpoint_config(keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq, checkpoint_at_end),
            trial_name_creator=trial_name_creator,
            trial_dirname_creator=trial_dirname_creator,
            log_to_file=log_to_file,
            export_formats=export_formats,
            max_failures=max_failures,
            restore=restore,
            local_dir=local_dir,
        )
    tune_config = _tune_config(
        run_or_experiment,
        metric=metric,
        mode=mode,
        search_alg=create_searcher(search_alg) if isinstance(search_alg, str) else search_alg,
        scheduler=create_scheduler(scheduler) if isinstance(scheduler, str) else scheduler,
        reuse_actors=reuse_actors,
        max_concurrent_trials=max_concurrent_trials,
        chdir_to_trial_dir=chdir_to_trial_dir,
    )
    run_config = _run_config(
        run_or_experiment,
        fail_fast=fail_fast,
        verbose=verbose,
        progress_reporter=progress_reporter,
        callbacks=list(callbacks or ()),
    )
    analysis = _fit(run_or_experiment, tune_config, run_config, resume, resume_config)
    incomplete = [trial for trial in analysis.trials if trial.status != "TERMINATED"]
    if incomplete and raise_on_failed_trial:
        raise TuneError(f"Trials did not complete: {_named(incomplete)}")
    if incomplete:
        log.error("Trials did not complete: %s", _named(incomplete))
    return analysis


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Experiment | Mapping[str, Any]],
    scheduler: Any = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
) -> list[AnalysedTrial]:
    """Run experiments, one after the other, and return the trials of all of them.

    The experiments are ``Experiment`` objects, or dicts that map a name to the arguments of one. ``concurrent`` has no
    effect: the trials of each experiment run in parallel.
    """
    del concurrent
    trials: list[AnalysedTrial] = []
    for experiment in _experiments(experiments):
        analysis = run(
            experiment,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
        )
        trials.extend(analysis.trials)
    return trials


def _fit(
    experiment: Experiment,
    tune_config: TuneConfig,
    run_config: RunConfig,
    resume: bool | str | None,
    resume_config: ResumeConfig | None,
) -> ExperimentAnalysis:
    spec = experiment.spec
    trainable = with_export(experiment.trainable, spec["export_formats"])
    if spec["resources_per_trial"] is not None:
        trainable = with_resources(trainable, spec["resources_per_trial"])
    wanted = resume_config or _resumption(resume)
    where = experiment.path, spec["storage_filesystem"]
    need_not_exist = isinstance(resume, str)  # "AUTO"
    if wanted is not None and (not need_not_exist or Tuner.can_restore(*where)):
        tuner = Tuner.restore(
            where[0],
            trainable,
            param_space=spec["config"],
            storage_filesystem=where[1],
            tune_config=tune_config,
            run_config=run_config,
            _resume_config=wanted,
        )
    else:
        tuner = Tuner(trainable, param_space=spec["config"], tune_config=tune_config, run_config=run_config)
    if spec["restore"] is not None:
        tuner._definition = replace(tuner._definition, start_from=Checkpoint(spec["restore"]))
    tuner.fit()
    return tuner._analysis()


def _resumption(resume: bool | str | None) -> ResumeConfig | None:
    if not resume:
        return None
    if resume is True or resume == "AUTO":
        return ResumeConfig()
    if isinstance(resume, str) and resume.startswith("AUTO+") and resume[5:] in _RESUMED:
        return _RESUMED[resume[5:]]
    known = ", ".join(f'"AUTO+{name}"' for name in _RESUMED)
    raise ValueError(f'run(resume={resume!r}): use True, False, "AUTO", {known}')


def _checkpoint_config(
    num_to_keep: int | None, score_attribute: str | None, frequency: int, at_end: bool
) -> CheckpointConfig:
    """From arguments that Ray had before ``checkpoint_config``; "min-" before the attribute: the lowest is best."""
    if num_to_keep is None and score_attribute is None and not frequency and not at_end:
        return CheckpointConfig()
    warnings.warn(
        "tune.run(keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq, checkpoint_at_end): pass "
        "checkpoint_config=CheckpointConfig(...) instead",
        DeprecationWarning,
        stacklevel=3,
    )
    is_min = score_attribute is not None and score_attribute.startswith("min-")
    return CheckpointConfig(
        num_to_keep=num_to_keep,
        checkpoint_score_attribute=score_attribute and score_attribute.removeprefix("min-"),
        checkpoint_score_order="min" if is_min else "max",
        checkpoint_frequency=frequency,
        checkpoint_at_end=at_end or None,
    )


def _tune_config(experiment: Experiment, chdir_to_trial_dir: bool | None, **given: Any) -> TuneConfig:
    own = {name: experiment.spec[name] for name in _OF_SEARCH}
    if chdir_to_trial_dir is not None:
        own["chdir_to_trial_dir"] = chdir_to_trial_dir
    return TuneConfig(**own, **given)


def _run_config(experiment: Experiment, fail_fast: bool | str, **given: Any) -> RunConfig:
    failures = FailureConfig(max_failures=experiment.spec["max_failures"], fail_fast=fail_fast)
    own = {name: experiment.spec[name] for name in _OF_RUN}
    return RunConfig(name=experiment.name, failure_config=failures, **own, **given)


_OF_SEARCH = ("num_samples", "time_budget_s", "trial_name_creator", "trial_dirname_creator")
_OF_RUN = ("stop", "storage_path", "storage_filesystem", "sync_config", "checkpoint_config", "log_to_file")


def _experiments(given: Any) -> list[Experiment]:
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [
            spec if isinstance(spec, Experiment) else Experiment.from_json(name, spec) for name, spec in given.items()
        ]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [experiment for each in given for experiment in _experiments(each)]
    raise TuneError(f"run_experiments(experiments={given!r}): pass an Experiment, a dict of them, or a list")


def _named(trials: Sequence[AnalysedTrial]) -> str:
    return ", ".join(f"{trial} ({trial.status})" for trial in trials)
