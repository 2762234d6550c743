"""The experiment that a seed generates: its searcher and scheduler, how its trials run, and what fails."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import Struct

from holdfast.core.experiment.resumption import Resumption
from holdfast.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from holdfast.tune.search_space import grid_search, uniform
from holdfast.tune.stopper import (
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
)

METRIC, MODE, TIME = "score", "max", "training_iteration"
SCHEDULERS = ("fifo", "asha", "hyperband", "pbt", "pbt in step", "median", "resources")
SEARCHERS = ("variants", "grid", "learning", "limited", "limited in batches", "repeated")
STOPPERS = ("none", "none", "iterations", "budget", "plateau")


class TrialFate(Struct, frozen=True):
    """What a trial does: how many reports it makes, how fast, and at which of them its process dies."""

    length: int
    report_s: float
    dies_at: tuple[int, ...]  # each once
    fails_at: int  # at which report it fails for good; 0: never


class ExperimentSchedule(Struct, frozen=True):
    seed: int
    scheduler: str
    searcher: str
    stopper: str
    num_samples: int
    max_concurrent: int
    fail_fast: bool
    nodes: tuple[float, ...]  # their CPUs
    checkpoint_every: int
    retries: int
    storage_s: float  # how long a write takes; 0: a disk
    kills: tuple[int, ...]  # at which of its steps each driver is killed
    storage_fails: tuple[float, ...]  # after how many seconds storage fails, for longer than a driver waits
    keep: int  # checkpoints that a trial keeps; 0: all
    losses: tuple[float, ...]  # after how many seconds a node is lost; another one joins later
    interrupts: tuple[float, ...]  # after how many seconds Ctrl+C is pressed
    resumptions: tuple[Resumption, ...]  # of the drivers after the first
    budget_s: float
    misfit: bool  # whether one trial asks for more than there is

    @property
    def counts_all(self) -> bool:
        """Whether the number of trials is known in advance."""
        stops = self.stopper in ("budget", "plateau") or self.fail_fast
        return not stops

    def fate(self, number: int) -> TrialFate:
        rng = Random(self.seed * 1009 + number)
        length = rng.randint(1, 6)
        dies = tuple(rng.randint(1, length) for _ in range(rng.choice((0, 0, 0, 1, 2))))
        return TrialFate(length, rng.choice((0.5, 1.0, 3.0)), dies, rng.choice((0,) * 9 + (rng.randint(1, length),)))


def draw(seed: int) -> ExperimentSchedule:
    rng = Random(seed)
    faults = rng.choice((0, 1, 1, 2))  # how many faults the schedule has
    restarts = 6
    anew = Resumption(*(rng.choice(("resume", "resume", how)) for how in ("restart", "resume")))
    return ExperimentSchedule(
        seed=seed,
        scheduler=rng.choice(SCHEDULERS),
        searcher=rng.choice(SEARCHERS),
        stopper=rng.choice(STOPPERS),
        num_samples=rng.randint(1, 6),
        max_concurrent=rng.choice((0, 0, 1, 2, 3)),
        fail_fast=rng.random() < 0.08,
        nodes=tuple(float(rng.randint(1, 3)) for _ in range(rng.randint(1, 2))),
        checkpoint_every=rng.choice((1, 1, 2, 3)),
        retries=rng.choice((0, 1, 3)),
        storage_s=rng.choice((0.0, 0.0, 0.3, 2.5)),
        kills=tuple(_early(rng) for _ in range(rng.randint(0, 3 * faults))),
        storage_fails=tuple(rng.uniform(0.0, 12.0) for _ in range(rng.choice((0, 0, 0, faults)))),
        keep=rng.choice((0, 0, 1, 2)),
        losses=tuple(rng.uniform(0.0, 15.0) for _ in range(rng.choice((0, 0, faults)))),
        interrupts=tuple(rng.uniform(0.0, 12.0) for _ in range(rng.choice((0, 0, 0, faults)))),
        resumptions=tuple(rng.choice((Resumption(), Resumption(), anew)) for _ in range(restarts)),
        budget_s=rng.uniform(2.0, 25.0),
        misfit=rng.random() < 0.05,
    )


def _early(rng: Random) -> int:
    """A step of a driver, often one of its first, in which it takes over."""
    return rng.randint(1, rng.choice((8, 30, 120)))


def make_scheduler(schedule: ExperimentSchedule) -> TrialScheduler:
    made: dict[str, Any] = {
        "fifo": FIFOScheduler,
        "asha": lambda: ASHAScheduler(TIME, max_t=6, grace_period=1, reduction_factor=2),
        "hyperband": lambda: HyperBandScheduler(TIME, max_t=4, reduction_factor=2),
        "median": lambda: MedianStoppingRule(TIME, grace_period=1, min_samples_required=1),
        "pbt": lambda: _pbt(synch=False),
        "pbt in step": lambda: _pbt(synch=True),
        "resources": lambda: ResourceChangingScheduler(FIFOScheduler(), more_at_two),
    }
    scheduler: TrialScheduler = made[schedule.scheduler]()
    scheduler.set_search_properties(METRIC, MODE, seed=schedule.seed)
    return scheduler


def _pbt(*, synch: bool) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        TIME,
        perturbation_interval=2,
        hyperparam_mutations={"x": uniform(0.0, 1.0), "filled": [1, 2, 3]},
        quantile_fraction=0.5,
        synch=synch,
    )


def more_at_two(_experiment: Any, _trial: Any, result: Any, _scheduler: Any) -> Any:
    """A trial gets half a CPU from its second result on."""
    return [{"CPU": 0.5}] if result[TIME] >= 2 else None


def make_searcher(schedule: ExperimentSchedule, space: dict[str, Any]) -> Searcher:
    searcher: Searcher = BasicVariantGenerator()
    if schedule.searcher in ("learning", "limited", "limited in batches", "repeated"):
        searcher = LearningSearcher()
    if schedule.searcher == "optuna":
        from holdfast.tune.search.optuna import OptunaSearch

        searcher = OptunaSearch(seed=schedule.seed)
    if schedule.searcher.startswith("limited"):
        searcher = ConcurrencyLimiter(searcher, 2, batch=schedule.searcher.endswith("batches"))
    elif schedule.searcher == "repeated":
        searcher = Repeater(searcher, repeat=2)
    searcher.set_search_properties(METRIC, MODE, space, num_samples=schedule.num_samples, seed=schedule.seed)
    return searcher


def make_space(schedule: ExperimentSchedule) -> dict[str, Any]:
    if schedule.searcher == "grid":
        return {"x": uniform(0.0, 1.0), "kind": grid_search(["a", "b"])}
    return {"x": uniform(0.0, 1.0), "constant": 7}


def make_stopper(schedule: ExperimentSchedule) -> Stopper:
    made: dict[str, Any] = {
        "none": NoopStopper,
        "iterations": lambda: MaximumIterationStopper(3),
        "budget": lambda: TimeoutStopper(schedule.budget_s),
        "plateau": lambda: ExperimentPlateauStopper(METRIC, std=0.2, top=3, mode=MODE),
    }
    stopper: Stopper = made[schedule.stopper]()
    return stopper


class LearningSearcher(Searcher):
    """Suggests from the results that it was given. A replay with other results would lead to other suggestions."""

    def __init__(self) -> None:
        super().__init__(METRIC, MODE)
        self.heard: list[tuple[str, float]] = []
        self.out: set[str] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self.out.add(trial_id)
        return {"x": 0.1 + 0.8 * Random(f"{trial_id} {self.heard}").random()}

    def replay_suggestion(self, trial_id: str, config: Any) -> None:
        self.out.add(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.heard.append((trial_id, result[METRIC]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.heard.append((trial_id, -1.0 if error or result is None else result.get(METRIC, -2.0)))
        self.out.discard(trial_id)
