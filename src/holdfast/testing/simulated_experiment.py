"""The simulated environment of an experiment's loop: the journal's storage, the nodes, the callbacks. The policy is
real, and is watched."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Requests
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import Trial
from holdfast.store import values
from holdfast.testing.fates import expect
from holdfast.tune.experiment.live_experiment import LiveExperiment
from holdfast.tune.experiment.user_policy import UserPolicy
from holdfast.wire import messages as wire

if TYPE_CHECKING:
    from holdfast.testing.experiment_simulator import Simulation


class SimulatedJournal:
    """A disk, or slow storage. Writes in progress when the driver is killed may or may not arrive."""

    def __init__(self, simulation: Simulation, inbox: queue.SimpleQueue[Any]) -> None:
        self._simulation, self._inbox = simulation, inbox

    def check_lease(self) -> None:
        pass

    def write_soon(self, entries: Any, then: Any) -> bool:
        simulation = self._simulation
        encoded = [(kind, values.encode(body)) for kind, body in entries]
        delay = simulation.schedule.storage_s
        if not delay:
            self._arrive(encoded)
            then()
        else:  # one request after another
            simulation.clock.after(delay, self._inbox.put, lambda: self._arrived(encoded, then))
        return False

    def _arrived(self, encoded: list[tuple[str, bytes]], then: Any) -> None:
        self._arrive(encoded)
        then()

    def _arrive(self, encoded: list[tuple[str, bytes]]) -> None:
        simulation = self._simulation
        now = simulation.clock.time()
        for kind, body in encoded:
            simulation.step("a write")
            simulation.journal.append((now, kind, body))
            decoded = values.decode(body)
            simulation.note(f"{kind} {decoded}")
            simulation.judge.take_in(kind, decoded, now)
        if encoded:
            simulation.step("written")

    def close(self, _all_stored: bool) -> None:
        pass


class WatchedPolicy(UserPolicy):
    """The real policy. Its answers are compared with its earlier ones, and the driver may be killed at each answer."""

    simulation: Simulation

    def _said(self, kind: str, trial: str, requests: Requests) -> Requests:
        self.simulation.answered(kind, trial, ev.Answer(requests=tuple(requests)) if requests else ev.CONTINUE)
        if not self.simulation.is_replay:
            self.simulation.step("an answer")
        return requests

    def added(self, state: ExperimentState, trial: Trial, event: ev.Added, is_replay: bool) -> Requests:
        return self._said("Added", trial.trial_id, super().added(state, trial, event, is_replay))

    def resumed(self, state: ExperimentState, trial: Trial) -> Requests:
        return self._said("Resumed", trial.trial_id, super().resumed(state, trial))

    def ended(self, state: ExperimentState, trial: Trial, was_running: bool) -> Requests:
        return self._said("Ended", trial.trial_id, super().ended(state, trial, was_running))

    def idled(self, state: ExperimentState) -> Requests:
        return self._said("Idled", "", super().idled(state))

    def reported(self, state: ExperimentState, trial: Trial) -> ev.Answer:
        answer = super().reported(state, trial)
        self.simulation.answered("Reported", trial.trial_id, answer)
        if not self.simulation.is_replay:
            self.simulation.step("an answer")
            self.simulation.happened[f"answer {answer.action}"] += 1
            for request in answer.requests:
                self.simulation.happened[f"request {type(request).__name__}"] += 1
        return answer


class SimulatedEngine:
    """Nodes whose agents close a trial's run as soon as they are asked to."""

    grows = False
    is_this_machine = True

    def __init__(self, simulation: Simulation, inbox: queue.SimpleQueue[Any]) -> None:
        self._simulation, self._inbox = simulation, inbox

    def open(self, _configure: Any, inbox: queue.SimpleQueue[Any]) -> SimulatedEngine:
        for cpus in self._simulation.schedule.nodes:
            self._simulation.join_node(inbox, cpus)
        return self

    def accept(self, _node: str, _pid: int) -> None:
        pass

    def send(self, node: str, message: wire.Message) -> None:
        if isinstance(message, wire.CloseRun):
            self._inbox.put((node, wire.RunClosed(message.run)))

    def close(self) -> None:
        pass


class ToldListeners:
    """Takes the place of ``Listeners``: callbacks whose memory survives the driver."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._judge = simulation, simulation.judge
        self._started: set[str] = set()

    def began(self, _experiment: LiveExperiment, _check_lease: Callable[[], None]) -> None:
        pass

    def has_heard_of(self, trial: Trial) -> bool:
        return trial.trial_id in self._started

    def started(self, trial: Trial) -> None:
        self._simulation.step("a callback")
        self._started.add(trial.trial_id)

    def reported(self, trial: Trial, result: dict[str, Any]) -> None:
        self._simulation.step("a callback")
        expect(trial.trial_id in self._started, "callbacks hear of a start before a result", f"{trial}")
        self._judge.told[trial.trial_id, trial.life, result["training_iteration"]] += 1

    def ended(self, trial: Trial) -> None:
        self._simulation.step("a callback")
        known = trial.trial_id in self._started or not trial.results
        expect(known, "callbacks hear of a start before an end", f"{trial}")
        self._judge.ends_told[trial.trial_id, trial.life] += 1

    def exploited(self, _trial: Trial) -> None:
        self._simulation.happened["exploited"] += 1

    def recovers(self, _trial: Trial) -> None:
        pass

    def stopping(self, _text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self._simulation.note(text)

    def output(self, _name: str, _rank: int, _line: str) -> None:
        pass

    def turned(self) -> list[ev.CallbackChanged]:
        return []
