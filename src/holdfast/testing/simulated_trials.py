"""Trial runs without processes. They replace the drivers of runs below the experiment's real loop.

The stored data of a trial survives the driver. What the trial was doing does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from holdfast.core.experiment import events as experiment_events
from holdfast.core.experiment.trial import Trial
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, Outcome, RunSpec
from holdfast.driver.plan import Ending, Plan
from holdfast.errors import StorageError, WorkerGroupError
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.testing.clock import Clock
from holdfast.testing.experiment_schedule import METRIC, ExperimentSchedule, TrialFate
from holdfast.testing.fates import expect
from holdfast.tune.experiment.capacity import PLAIN
from holdfast.wire import messages as wire

CONFIGURE = wire.Configure(
    node_id="",
    run_name="t",
    run_dir="/nowhere",
    payload=b"",
    env={},
    sys_path=[],
    argv=[],
    cwd=b"",
    essential=[],
    preload=[],
    start_method="fork",
    stop_grace_s=1.0,
    metadata={},
    validates=False,
    patience_s=1.0,
    node_timeout_s=10.0,
)
AT = 1_700_000_000.0  # the wall clock when the simulation begins


class WorldClock(Clock):
    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return AT + self.now


class SavedModel(NamedTuple):
    """The content of a checkpoint: whose training it is, and the config of each report."""

    number: int
    lineage: tuple[str, ...]


@dataclass
class TrialDirectory:
    """The stored data of a trial."""

    checkpoints: dict[int, SavedModel] = field(default_factory=dict)
    reports: dict[int, tuple[dict[str, Any], float]] = field(default_factory=dict)  # of the last attempt's history
    marks: dict[str, SavedModel] = field(default_factory=dict)  # adopted checkpoints, by mark
    attempt_number: int = 0
    deaths: int = 0
    died_at: set[int] = field(default_factory=set)

    @property
    def newest(self) -> SavedModel:
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else SavedModel(0, ())


@dataclass
class World:
    """What survives a driver of the experiment, and what the simulated trials need from it."""

    schedule: ExperimentSchedule
    clock: WorldClock
    step: Callable[[str], None]  # the driver may be killed here
    directories: dict[str, TrialDirectory] = field(default_factory=dict)
    running: dict[str, SimulatedRun] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)  # exploits: the trial and the exploit's mark
    broken: Exception | None = None  # errors that would otherwise look like the trial's own failure

    def directory(self, name: str) -> TrialDirectory:
        return self.directories.setdefault(name, TrialDirectory())


class SimulatedTrialRuntime:
    """Takes the place of ``TrialRuntime``."""

    configure = CONFIGURE

    def __init__(self, world: World, lockstep: bool) -> None:
        self._world, self._lockstep = world, lockstep

    def placement_of(self, _trial: Trial) -> Any:
        return PLAIN

    def plan_of(self, trial: Trial) -> Plan:
        self._world.step("plan")
        location = Location.parse("path", f"/nowhere/{trial.directory}")
        identity = {"trial": trial, "config": dict(trial.config)}
        return Plan(trial.name, location, RunSpec(), b"", identity, lockstep=self._lockstep)

    def driver_of(self, plan: Plan, engine: Any, inbox: Any, history: Any, display: Any) -> Any:
        return SimulatedRun(self._world, plan, engine, inbox, history, display)

    def adopt(self, donor: Trial, trial: Trial, number: int | None) -> CheckpointRecord:
        """Makes the same promises as ``exploit_checkpoint.adopt``."""
        self._world.step("adopt")
        source, target = self._world.directory(donor.directory), self._world.directory(trial.directory)
        expect(trial.trial_id not in self._world.running, "a trial that runs adopts nothing", trial.trial_id)
        mark = f"x{trial.exploits + 1}"
        model = target.marks.get(mark)
        if model is None:
            model = source.checkpoints.get(number) if number is not None else source.newest
            if model is None or not model.number:
                self._world.refused.add((trial.trial_id, mark))
                raise StorageError("the donor does not have that checkpoint any more")
            target.marks[mark] = model
        target.checkpoints[model.number] = model
        for later in [n for n in target.checkpoints if n > model.number]:
            del target.checkpoints[later]
        self._world.step("adopted")
        return CheckpointRecord(f"checkpoint_{model.number:06d}-{mark}", model.number)

    def unheard(self, trial: Trial, records: list[Record]) -> list[experiment_events.Reported]:
        stored = self._world.directory(trial.directory)
        last = 1 << 62 if self.has_finished(records) else stored.newest.number
        found = []
        for number in sorted(n for n in stored.reports if trial.heard < n <= last):
            metrics, moment = stored.reports[number]
            checkpoint = number if number in stored.checkpoints else None
            named = {"checkpoint_dir_name": f"checkpoint_{number:06d}"} if checkpoint is not None else {}
            found.append(experiment_events.Reported(trial.trial_id, number, {**metrics, **named}, checkpoint, moment))
        return found

    def has_finished(self, records: list[Record]) -> bool:
        last = next((record for record in reversed(records) if record.kind in ("RunEnded", "GroupStarted")), None)
        return last is not None and last.kind == "RunEnded" and last.body["outcome"] == Outcome.FINISHED.value


class SimulatedRun:
    """Takes the place of a run's ``Driver``: attempts, reports, checkpoints, deaths, a stop. Reports come one after
    another. A report with files is delivered when its checkpoint is committed."""

    def __init__(self, world: World, plan: Plan, engine: Any, inbox: Any, history: Any, display: Any) -> None:
        self._world, self._plan, self._engine = world, plan, engine
        self._inbox, self._history, self._display = inbox, history, display
        self.trial: Trial = plan.identity["trial"]
        self._config: dict[str, Any] = dict(plan.identity["config"])
        self._stored = world.directory(self.trial.directory)
        self._fate: TrialFate = world.schedule.fate(int(self.trial.trial_id.rpartition("_")[2]))
        self._ending: Ending | None = None
        self._stopping = self._attempt_lives = False
        self._commits, self._begins_later = 0, False  # checkpoints whose records are not delivered yet
        self._free_until = -1  # in lockstep
        self._next: int | None = None  # the report to make when that is allowed
        self._model = self._stored.newest
        self.state = SimpleNamespace(attempt_number=self._stored.attempt_number)

    # As the trial's run asks

    def open(self) -> None:
        world, id = self._world, self.trial.trial_id
        self._session = self._engine.open(CONFIGURE, self._inbox)
        expect(id not in world.running, "a trial runs once at a time", id)
        world.running[id] = self
        taken = sum(bundle["CPU"] for run in world.running.values() for bundle in run.trial.resources)
        expect(taken <= sum(world.schedule.nodes), "trials have the capacity that they need", f"{taken} CPUs in use")
        most = world.schedule.max_concurrent
        expect(not most or len(world.running) <= most, "the concurrency limit holds", f"{len(world.running)} run")

    def start(self) -> None:
        for number in sorted(self._stored.reports):
            if number <= self._stored.newest.number:  # because a recovering driver delivers safe reports again
                self._tell(number)
        if not self._engine.wants_capacity:
            self._begin()

    def take_in(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, ev.StopAsked):
                self._stop()
            elif callable(item):
                item()
            elif isinstance(item[1], wire.NodeLost):
                self._die("its node was lost", counts=False)
            elif isinstance(item[1], (wire.NodeJoining, wire.NodeSeats)) and not self._attempt_lives:
                self._begin()

    def due(self) -> float:
        return float("inf")

    @property
    def is_over(self) -> bool:
        return self._ending is not None

    def ending(self) -> Ending:
        assert self._ending is not None
        return self._ending

    def let_go_on(self, until: int) -> None:
        self._free_until = max(self._free_until, until)
        if self._next is not None and self._next <= self._free_until + 1:
            self._train_to(self._next)

    def failed(self, error: Exception) -> Exception:
        self._world.broken = self._world.broken or error
        return error

    def close_session(self) -> None:
        self._session.close()

    def close(self) -> None:
        self._world.running.pop(self.trial.trial_id, None)
        self._session.close()

    def release(self) -> None:
        pass

    # The work of its workers

    def _begin(self) -> None:
        if self._stopping or self._ending is not None or self._attempt_lives:
            return
        self._begins_later = self._commits > 0
        if self._begins_later:
            return
        stored = self._stored
        self._attempt_lives = True
        stored.attempt_number += 1
        self.state.attempt_number = stored.attempt_number
        self._model = stored.newest
        self._check_start()
        for undone in [n for n in stored.reports if n > self._model.number]:
            del stored.reports[undone]
        body = {"generation": stored.attempt_number, "world_size": 1, "resume": None, "base": self._model.number}
        self._history.write([("GroupStarted", body)], self._in(self._began))

    def _check_start(self) -> None:
        base, known = self._model.number, self.trial.checkpoint_number or 0
        followed = base == known or bool(self.trial.awaits)  # reports of a trial that is being stopped are ignored
        expect(followed, "a trial starts from its newest checkpoint", f"{self.trial}: {base}, known {known}")
        wanted = self.trial.config
        expect(self._config == wanted, "a trial runs with its config", f"{self._config} is not {wanted}")

    def _began(self) -> None:
        self._display.attempt(self._stored.attempt_number, 1)
        self._free_until = max(-1, self._model.number)  # its first report needs no permission
        self._go_to(self._model.number + 1)

    def _go_to(self, number: int) -> None:
        if number > self._fate.length:
            self._end(Outcome.FINISHED)
        elif self._plan.lockstep and number > self._free_until + 1:
            self._next = number
        else:
            self._train_to(number)

    def _train_to(self, number: int) -> None:
        self._next = None
        self._world.clock.after(self._fate.report_s, self._inbox.put, self._in(lambda: self._reach(number)))

    def _reach(self, number: int) -> None:
        fate, stored = self._fate, self._stored
        if number == fate.fails_at:
            self._end(Outcome.FAILED, WorkerGroupError("it broke", {0: ValueError("it broke")}))
            return
        if number in fate.dies_at and number not in stored.died_at:
            stored.died_at.add(number)
            self._die("it was killed", counts=True)
            return
        key = f"{self._config.get('x', 0.0):.6f}"
        self._model = SavedModel(number, (*self._model.lineage, key))
        metrics = {METRIC: _score(self._model), "lineage": list(self._model.lineage)}
        stored.reports[number] = (metrics, self._world.clock.time())
        if number % self._world.schedule.checkpoint_every:
            self._tell(number)
            self._go_to(number + 1)
            return
        delay = 0.4 if self._world.schedule.storage_s else 0.0
        self._world.clock.after(delay, self._inbox.put, self._in(lambda: self._commit(number)))

    def _commit(self, number: int) -> None:
        self._stored.checkpoints[number] = self._model
        keep = self._world.schedule.keep
        for old in sorted(self._stored.checkpoints)[:-keep] if keep else ():
            del self._stored.checkpoints[old]

        go_on = self._in(lambda: self._go_to(number + 1))
        self._commits += 1

        def committed() -> None:  # delivered even if the attempt has died since, because the next one starts from it
            self._commits -= 1
            self._tell(number)
            go_on()
            if self._begins_later:
                self._world.clock.after(0.0, self._inbox.put, self._begin)  # when the experiment knows it

        self._history.write([("Committed", {"record": {"report": number}})], committed)

    def _tell(self, number: int) -> None:
        metrics = dict(self._stored.reports[number][0])
        id = f"checkpoint_{number:06d}" if number in self._stored.checkpoints else None
        assert self._plan.on_report is not None
        self._plan.on_report(number, [metrics], id)

    def _die(self, why: str, counts: bool) -> None:
        if not self._attempt_lives:
            return
        self._attempt_lives, self._next = False, None
        self._stored.deaths += counts
        if counts and self._stored.deaths > self._world.schedule.retries:
            self._end(Outcome.FAILED, WorkerGroupError(why, {0: RuntimeError(why)}))
        else:
            self._display.failure(why, "retry")
            if counts:
                self._world.clock.after(0.5, self._inbox.put, self._begin)

    def _stop(self) -> None:
        if not self._stopping:
            self._end(Outcome.STOPPED)

    def _end(self, outcome: Outcome, error: WorkerGroupError | None = None) -> None:
        self._attempt_lives, self._next, self._stopping = False, None, True
        body = {"outcome": outcome.value, "reason": ""}

        def ended() -> None:
            self._ending = Ending(outcome, error)

        self._history.write([("RunEnded", body)], ended)

    def _in(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call later, if this attempt still lives."""
        attempt_number = self._stored.attempt_number

        def do() -> None:
            if self._attempt_lives and self._stored.attempt_number == attempt_number and self._ending is None:
                call()

        return do


def _score(model: SavedModel) -> float:
    return round(sum(float(key) for key in model.lineage), 6)
