"""HyperBand: brackets that trade the number of trials against how early the worse ones are stopped.

Trials fill one bracket after the other, and one round after the other. At the end of a stage a trial pauses until its
bracket is full and all of its trials have reached that stage, or until nothing else can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.train.checks import check_number

from .decision import Decision, Request, StopTrial
from .halving import HalvingBracket, largest_bracket
from .scoring import ScoringScheduler
from .trial_scheduler import PAUSED, PENDING, ExperimentView, Requests, TrialView


class HyperBandScheduler(ScoringScheduler):
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        name = type(self).__name__
        check_number(f"{name}(max_t", max_t, least=1)
        check_number(f"{name}(reduction_factor", reduction_factor, above=1)
        self._max_t = max_t
        self._eta = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._s_max = largest_bracket(max_t, reduction_factor)
        self._brackets: list[HalvingBracket] = []  # only brackets with trials; empty ones are removed
        self._bracket_of: dict[str, HalvingBracket] = {}
        self._filling: HalvingBracket | None = None
        self._num_brackets = 0
        self._num_stopped = 0

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._check_objective()
        if trial.trial_id in self._bracket_of:
            return ()
        if self._filling is None or not self._filling.is_open:
            self._filling = self._next_bracket()
        self._filling.add(trial.trial_id)
        self._bracket_of[trial.trial_id] = self._filling
        return ()

    def _next_bracket(self) -> HalvingBracket:
        round_, place = divmod(self._num_brackets, self._s_max + 1)
        bracket = HalvingBracket(
            self._bracket_at(place), self._s_max, self._max_t, self._eta, round_, self._stop_last_trials
        )
        self._brackets.append(bracket)
        self._num_brackets += 1
        return bracket

    def _bracket_at(self, place: int) -> int:
        """Which bracket a round has at a place: the smallest first."""
        return place

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        reading = self._read(trial, result)
        if isinstance(reading, Decision):
            return reading
        bracket = self._bracket_of.get(trial.trial_id)
        if bracket is None:
            return Decision("STOP", "its bracket continued without it")
        bracket.update(trial.trial_id, reading)
        if not bracket.waits(trial.trial_id):
            return self.CONTINUE
        requests = self._go_on(bracket) if bracket.is_last_stage or not bracket.is_open else []
        mine = [request.reason for request in requests if request.trial_id == trial.trial_id]
        others = [request for request in requests if request.trial_id != trial.trial_id]
        if mine:
            return Decision("STOP", mine[0], others)
        if bracket.waits(trial.trial_id):
            return Decision("PAUSE", f"waits for the others of its bracket at {bracket.milestone:g}", others)
        return Decision("CONTINUE", f"continues to {bracket.milestone:g}", others)

    def _go_on(self, bracket: HalvingBracket) -> list[StopTrial]:
        """Halve as often as all remaining trials wait, and stop those at the very end."""
        stops = []
        while bracket.all_wait() and not bracket.is_last_stage:
            milestone = bracket.milestone
            for trial_id in bracket.halve():
                stops.append(
                    self._drop(trial_id, f"not among the best {bracket.sizes[bracket.stage]} at {milestone:g}")
                )
        if bracket.is_last_stage:
            for trial_id in [trial_id for trial_id in bracket.trials if bracket.waits(trial_id)]:
                del bracket.trials[trial_id]
                stops.append(self._drop(trial_id, f"reached max_t={self._max_t:g}"))
        return stops

    def _drop(self, trial_id: str, reason: str) -> StopTrial:
        del self._bracket_of[trial_id]
        self._num_stopped += 1
        return StopTrial(trial_id, reason)

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        return self.on_trial_remove(experiment, trial)

    def on_trial_error(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        return self.on_trial_remove(experiment, trial)

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        """The others no longer wait for it."""
        bracket = self._bracket_of.pop(trial.trial_id, None)
        stops: list[StopTrial] = []
        if bracket is not None:
            del bracket.trials[trial.trial_id]
            if not bracket.is_open:
                stops = self._go_on(bracket)
        self._let_go()
        return stops

    def _let_go(self) -> None:
        self._brackets = [bracket for bracket in self._brackets if bracket.trials or bracket is self._filling]

    def on_idle(self, experiment: ExperimentView) -> Requests:
        """No further trials will fill the brackets: the first one that waits continues as it is."""
        for bracket in self._in_order():
            if bracket.all_wait():
                stops: list[Request] = [*self._go_on(bracket)]
                self._let_go()
                return stops
        return ()

    def choose_trial_to_run(self, experiment: ExperimentView) -> TrialView | None:
        for bracket in self._in_order():
            for trial_id in bracket.trials:
                trial = experiment.get_trial(trial_id)
                if trial is None:
                    continue
                if trial.status == PENDING or (trial.status == PAUSED and not bracket.waits(trial_id)):
                    return trial
        return None

    def _in_order(self) -> list[HalvingBracket]:
        """Round by round, and in each the bracket first that has done the least part of its work."""
        return sorted(self._brackets, key=lambda bracket: (bracket.round, bracket.progress))

    def debug_string(self) -> str:
        lines = [
            f"bracket of {bracket.sizes[0]}: {len(bracket.trials)} trials, next milestone {bracket.milestone:g}, "
            f"{bracket.progress:.0%} done"
            for bracket in self._in_order()
        ]
        return "\n".join([f"{type(self).__name__}: {self._num_stopped} stopped, {self._num_brackets} brackets", *lines])
