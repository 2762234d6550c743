"""Plays fault schedules against the experiment's real loop, core, schedulers and searchers. Each seed is one schedule.

The driver is killed between any two of its steps, nodes and trials die, storage is slow, Ctrl+C is pressed, and another
driver resumes. Only the trials' processes, the journal's storage and the clock are simulated.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.resumption import Resumption
from holdfast.errors import StorageUnavailableError
from holdfast.settings import Settings
from holdfast.store import values
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.testing.experiment_invariants import ExperimentJudge
from holdfast.testing.experiment_schedule import (
    METRIC,
    MODE,
    ExperimentSchedule,
    draw,
    make_scheduler,
    make_searcher,
    make_space,
    make_stopper,
)
from holdfast.testing.fates import Violation, expect
from holdfast.testing.simulated_experiment import SimulatedEngine, SimulatedJournal, ToldListeners, WatchedPolicy
from holdfast.testing.simulated_trials import SimulatedTrialRuntime, World, WorldClock
from holdfast.tune.experiment.experiment_driver import ExperimentDriver
from holdfast.tune.experiment.live_experiment import ExperimentSpec, LiveExperiment
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.experiment.trial_runtime import SharedByTrials
from holdfast.tune.experiment.trial_storage import JournalBatch
from holdfast.tune.schedulers import FIFOScheduler
from holdfast.tune.stopper import NoopStopper
from holdfast.wire import messages as wire

MOST_TURNS = 4000
TICK_S = 1.0
HOME = Location.parse("path", "/nowhere")


class ExperimentDriverKilled(BaseException):
    """The driver is killed at this point."""


@dataclass
class Played:
    """The result of a schedule."""

    outcome: str
    drivers: int
    records: int
    happened: Counter[str]


class Simulation:
    """One schedule, from its first driver to its end."""

    def __init__(self, schedule: ExperimentSchedule, trace: list[str] | None = None) -> None:
        self.schedule, self.trace = schedule, trace
        self.clock = WorldClock()
        self.world = World(schedule, self.clock, self.step)
        self.judge = ExperimentJudge(schedule, self.world.refused)
        self.journal: list[tuple[float, str, bytes]] = []
        self.happened: Counter[str] = Counter()
        self._kills = list(schedule.kills)
        self._resumptions = list(schedule.resumptions)
        self._losses, self._interrupts = list(schedule.losses), list(schedule.interrupts)
        self._failures = list(schedule.storage_fails)
        self._steps_left = 0
        self._nodes = 0
        self.epoch = 0

    def step(self, what: str) -> None:
        """The driver may be killed here."""
        self._steps_left -= 1
        if self._steps_left == 0:
            self.happened[f"killed at {what}"] += 1
            self.note(f"driver {self.epoch} is killed at {what}")
            raise ExperimentDriverKilled

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.clock.now:8.2f} {text}")

    def run(self) -> Played:
        self.note(f"{self.schedule}")
        resumption = Resumption()
        while True:
            self.epoch += 1
            expect(self.epoch < 20, "the experiment ends", "it is resumed again and again")
            self._steps_left = self._kills.pop(0) if self._kills else 0
            try:
                outcome = self._drive(resumption)
            except ExperimentDriverKilled:
                outcome = "killed"
            except StorageUnavailableError:
                outcome = "failed"
            self.judge.driver_is_gone()
            self.clock.forget_all()
            self.world.running.clear()
            self.clock.now += 5.0
            self.happened[outcome] += 1
            failed_fast = outcome == "stopped" and self._driver.failed_fast is not None
            if outcome == "finished" or (failed_fast and self.schedule.fail_fast):
                break
            resumption = self._resumptions.pop(0) if self._resumptions else Resumption()
        if outcome == "finished":
            self.judge.check_finished()
        return Played(outcome, self.epoch, len(self.journal), self.happened)

    def _drive(self, resumption: Resumption) -> str:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        schedule, space = self.schedule, make_space(self.schedule)
        scheduler, stopper = make_scheduler(schedule), make_stopper(schedule)
        names = TrialNames("t", "f")
        policy = WatchedPolicy(make_searcher(schedule, space), scheduler, stopper, space, names, self._bundles, METRIC)
        object.__setattr__(policy, "simulation", self)
        spec = ExperimentSpec(METRIC, MODE, schedule.num_samples, schedule.max_concurrent, schedule.fail_fast)
        experiment = LiveExperiment(spec, HOME, policy)
        storage = SimulatedJournal(self, inbox)
        nodes = SharedNodes(SimulatedEngine(self, inbox))  # type: ignore[arg-type]
        batch = JournalBatch(storage, self.clock.monotonic)  # type: ignore[arg-type]
        shared = SharedByTrials(nodes, batch, inbox, SETTINGS, ToldListeners(self), self.clock)  # type: ignore[arg-type]
        lockstep = not (type(scheduler) is FIFOScheduler and type(stopper) is NoopStopper)
        runtime: Any = SimulatedTrialRuntime(self.world, lockstep)
        driver = self._driver = ExperimentDriver(experiment, shared, runtime, resumption, float("inf"))
        stopper.use_clock(driver.elapsed)
        self._replay(driver, experiment)
        driver.begin(self.epoch)
        self.happened["drivers"] += 1
        self._plan_faults(inbox)
        driver.start()
        return self._turn_until_over(driver, experiment, batch, inbox)

    def _turn_until_over(
        self, driver: ExperimentDriver, experiment: LiveExperiment, batch: JournalBatch, inbox: queue.SimpleQueue[Any]
    ) -> str:
        self.clock.after(TICK_S, self._tick)
        self._ticked = False
        for _ in range(MOST_TURNS):
            if driver.is_over:
                batch.write_mark()
                while not inbox.empty():
                    item = inbox.get()
                    if callable(item):
                        item()
                self.judge.compare(experiment.state, everything=True)
                return "stopped" if experiment.state.driver.interrupted else "finished"
            if not inbox.empty() or self._ticked:
                self._ticked = False
                self.step("a turn")
                driver.turn([] if inbox.empty() else [inbox.get()])
                if self.world.broken is not None:
                    raise self.world.broken
                if not batch.has_open:
                    self.judge.compare(experiment.state)
            else:
                self.clock.run_next()
        raise Violation("the experiment ends", f"it does not, in {MOST_TURNS} turns: {experiment.state.get_trials()}")

    def _tick(self) -> None:
        self._ticked = True
        self.clock.after(TICK_S, self._tick)

    def _replay(self, driver: ExperimentDriver, experiment: LiveExperiment) -> None:
        records = [Record(n, time, kind, values.decode(body)) for n, (time, kind, body) in enumerate(self.journal)]
        self._answered = 0
        self.is_replay = True
        driver.replay(records)
        self.is_replay = False
        expect(self._answered == len(self.judge.answers), "a replay asks of what the journal has", f"{self._answered}")
        self.judge.compare(experiment.state, everything=True)

    def _bundles(self, config: dict[str, Any]) -> list[dict[str, float]]:
        misfit = self.schedule.misfit and config.get("x", 0.0) > 0.8
        return [{"CPU": 64.0 if misfit else 1.0}]

    # Faults

    def _plan_faults(self, inbox: queue.SimpleQueue[Any]) -> None:
        if self._losses:
            self.clock.after(self._losses.pop(0), self._lose_node, inbox)
        if self._failures:
            self.clock.after(self._failures.pop(0), inbox.put, StorageUnavailableError("storage cannot be reached"))
        if self._interrupts:
            self.clock.after(self._interrupts.pop(0), self._interrupt)

    def _interrupt(self) -> None:
        self.happened["interrupted"] += 1
        self.note("Ctrl+C")
        self._driver.ask_to_stop(2, False)

    def join_node(self, inbox: queue.SimpleQueue[Any], cpus: float) -> None:
        self._nodes += 1
        name = f"n{self._nodes}"
        inbox.put((name, wire.NodeReady(name, 1, cpus)))

    def _lose_node(self, inbox: queue.SimpleQueue[Any]) -> None:
        name = f"n{self._nodes}"
        self.happened["node lost"] += 1
        self.note(f"{name} is lost")
        inbox.put((name, wire.NodeLost(name)))
        self.clock.after(4.0, self.join_node, inbox, self.schedule.nodes[-1])

    # Answers of the policy

    def answered(self, kind: str, trial: str, answer: ev.Answer) -> None:
        """In a replay the policy repeats its earlier answers, as far as they became durable."""
        if not self.is_replay:
            return
        expect(self._answered < len(self.judge.answers), "a replay asks of what the journal has", f"{kind} {trial}")
        known = self.judge.answers[self._answered]
        self._answered += 1
        expect(known == (kind, trial, answer), "a decision is the same after a restore", f"{known}, {answer}")


SETTINGS = Settings()


def simulate(seed: int, trace: list[str] | None = None, **changed: Any) -> Played:
    """Play one schedule to its end. Raises Violation. The same seed always gives the same experiment. ``changed``:
    fields of the schedule that are replaced."""
    return Simulation(structs.replace(draw(seed), **changed), trace).run()


def simulate_range(start: int, count: int) -> dict[str, Any]:
    """Play the schedules of consecutive seeds. Stops at the first that breaks an invariant."""
    happened: Counter[str] = Counter()
    for seed in range(start, start + count):
        try:
            played = simulate(seed)
        except Exception as error:
            what = f"{error}" if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
            return {"happened": happened, "broken": f"seed {seed} broke: {what}"}
        happened.update(played.happened)
        happened["schedules"] += 1
        happened["records"] += played.records
    return {"happened": happened, "broken": ""}


def simulate_many(start: int, count: int, processes: int) -> dict[str, Any]:
    """The same in several processes."""
    share = -(-count // processes)
    command = [sys.executable, "-m", "holdfast.testing.experiment_simulator", "--json", "--seeds", str(share)]
    total: Counter[str] = Counter()
    broken = []
    with ExitStack() as stack:
        players = [
            stack.enter_context(subprocess.Popen([*command, "--start", str(first)], stdout=subprocess.PIPE))
            for first in range(start, start + count, share)
        ]
        for player in players:
            played = msgspec.json.decode(player.communicate()[0])
            total.update(played["happened"])
            broken += [played["broken"]] if played["broken"] else []
    return {"happened": total, "broken": "; ".join(broken)}


def explain(seed: int) -> str:
    """Play the schedule again and print what happened."""
    trace: list[str] = []
    try:
        simulate(seed, trace)
        verdict = "every invariant holds"
    except Violation as violation:
        verdict = f"BROKEN {violation}"
    return "\n".join([*trace, f"seed {seed}: {verdict}"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.experiment_simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many schedules")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, help="play until this time has passed")
    parser.add_argument("--seed", type=int, help="play this one alone, and tell every step")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        told = explain(options.seed)
        print(told)
        return 1 if "BROKEN" in told.splitlines()[-1] else 0
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(simulate_range(options.start, options.seeds)))
        return 0
    began, start, happened = time.monotonic(), options.start, Counter[str]()
    while True:
        played = simulate_many(start, options.seeds, os.cpu_count() or 1)
        happened.update(played["happened"])
        start += options.seeds
        if played["broken"] or options.seconds is None or time.monotonic() - began >= options.seconds:
            break
    print("\n".join(f"{what:<28}{count:>9}" for what, count in sorted(happened.items())))
    if played["broken"]:
        print(f"{played['broken']}\npython -m holdfast.testing.experiment_simulator --seed ... tells every step")
    return 1 if played["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
