"""One step in progress: the state as it changes, the policy to ask, and the commands so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.scheduler_requests import AnyRequest, Exploit, Resize, SetConfig, StopTrial
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import RUNNING, Trial


class Turn:
    __slots__ = ("commands", "is_replay", "now", "policy", "state")

    def __init__(self, state: ExperimentState, now: float, policy: Policy, is_replay: bool) -> None:
        self.state, self.now, self.policy, self.is_replay = state, now, policy, is_replay
        self.commands: list[do.Command] = []

    def trial(self, trial_id: str) -> Trial | None:
        """The trial; None if the journal has lost the record that added it."""
        trial = self.state.trials.get(trial_id)
        if trial is not None:
            trial.changed = self.now
        return trial

    def do(self, *commands: do.Command) -> None:
        self.commands.extend(commands)

    def journal(self, event: ev.Event, answer: ev.Answer = ev.CONTINUE) -> None:
        if self.is_replay:
            return
        if answer is not ev.CONTINUE and answer != ev.CONTINUE:
            event = structs.replace(event, answer=answer)
        self.commands.insert(0, do.Journal(event))

    def settled(self, event: Any, said: ev.Answer) -> ev.Answer:
        """The answer that counts: the journalled one, if there is one."""
        recorded: ev.Answer | None = event.answer
        if recorded is not None:
            return recorded
        return ev.CONTINUE if self.is_replay and self.state.answers_recorded else said

    def expect(self, trial: Trial, what: str, reason: str) -> None:
        """The decision takes effect when the trial is not running: now, or after it has stopped."""
        trial.awaits, trial.reason = what, reason
        self.state.awaiting[trial.trial_id] = trial
        if trial.status == RUNNING:
            self.do(do.StopRun(trial.trial_id))

    def carry_out(self, requests: Sequence[AnyRequest]) -> None:
        for request in requests:
            trial = self.state.trials.get(request.trial_id)
            if trial is None or trial.has_ended:
                continue
            match request:
                case SetConfig(config=config):
                    set_config(self, trial, dict(config))
                case StopTrial(reason=reason):
                    if trial.awaits != "ERROR":
                        self.expect(trial, "STOP", reason)
                case Resize(resources=resources):
                    trial.resources, trial.resized = [dict(bundle) for bundle in resources], True
                case Exploit():
                    trial.donor = request
                    if trial.status == RUNNING and not trial.awaits:
                        self.expect(trial, "EXPLOIT", f"it resumes from {request.donor_id}")
                case _:
                    pass  # a class saves with every result after which this may be requested; a function when it wants


def set_config(turn: Turn, trial: Trial, config: dict[str, Any]) -> None:
    trial.config = config
    trial.evaluated_params = {**trial.evaluated_params, **turn.policy.searched(config)}
