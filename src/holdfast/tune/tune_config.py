"""How an experiment searches, and what becomes of its trials when it is restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from holdfast.train.checks import check_int, check_number
from holdfast.tune.schedulers.trial_scheduler import TrialScheduler
from holdfast.tune.search.searcher import Searcher


@dataclass
class TuneConfig:
    """How to search.

    ``metric`` and ``mode`` define the best trial. ``num_samples`` is how many trials to run, or how often to run the
    whole grid; -1 continues until something stops it. ``max_concurrent_trials`` limits how many trials run in parallel,
    in addition to the resources. ``time_budget_s`` stops the experiment after this time. ``reuse_actors`` is accepted
    and has no effect: a trial's process costs only a fork. With ``chdir_to_trial_dir``, each trial has its own working
    directory; False leaves them all in the script's, as the environment variable ``RAY_CHDIR_TO_TRIAL_DIR=0`` does.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Searcher | None = None
    scheduler: TrialScheduler | None = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool = True

    def __post_init__(self) -> None:
        if self.mode not in (None, "min", "max"):
            raise ValueError(f'TuneConfig(mode={self.mode!r}): use "min" or "max"')
        if self.metric is not None and not isinstance(self.metric, str):
            raise TypeError(f"TuneConfig(metric={self.metric!r}): pass the name of a metric")
        check_int("TuneConfig(num_samples", self.num_samples, least=-1, note="; -1 continues until something stops it")
        if self.num_samples == 0:
            raise ValueError("TuneConfig(num_samples=0): must be at least 1, or -1 for no limit")
        if self.max_concurrent_trials is not None:
            check_int("TuneConfig(max_concurrent_trials", self.max_concurrent_trials, least=0, note=" (0: any number)")
        if self.time_budget_s is not None and not isinstance(self.time_budget_s, timedelta):
            check_number("TuneConfig(time_budget_s", self.time_budget_s, above=0)
        if self.scheduler is not None and not isinstance(self.scheduler, TrialScheduler):
            raise TypeError(f"TuneConfig(scheduler={self.scheduler!r}): pass one of holdfast.tune.schedulers")
        if self.search_alg is not None and not isinstance(self.search_alg, Searcher):
            raise TypeError(f"TuneConfig(search_alg={self.search_alg!r}): pass a holdfast.tune.search.Searcher")

    @property
    def budget_s(self) -> float | None:
        if isinstance(self.time_budget_s, timedelta):
            return self.time_budget_s.total_seconds()
        return None if self.time_budget_s is None else float(self.time_budget_s)


@dataclass
class ResumeConfig:
    """What a restore does with trials that have finished, have not finished, or have failed."""

    class ResumeType(str, Enum):
        """RESUME resumes from the latest checkpoint, RESTART from the beginning, SKIP leaves the trial as it is."""

        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: str = ResumeType.SKIP
    unfinished: str = ResumeType.RESUME
    errored: str = ResumeType.SKIP

    def __post_init__(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            try:
                setattr(self, name, self.ResumeType(getattr(self, name)))
            except ValueError:
                raise ValueError(
                    f"ResumeConfig({name}={getattr(self, name)!r}): use ResumeConfig.ResumeType.RESUME, RESTART or SKIP"
                ) from None
