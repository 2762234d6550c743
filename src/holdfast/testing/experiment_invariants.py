"""What must hold for an experiment, whatever fails. The judge checks the journal, record by record, and what policies
and listeners receive. It counts independently of the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from operator import attrgetter
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.advance import NEVER_RESUMED
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.records import event_of
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.step import replay
from holdfast.core.experiment.trial import ERROR, RUNNING, TERMINATED, Trial
from holdfast.testing.experiment_schedule import ExperimentSchedule
from holdfast.testing.fates import expect

# What a replay must reach. ``heard`` follows the attempts of a trial's own run only in a replay. Readers do not know
# which part of a config is searched.
COMPARED = tuple(sorted({*Trial.__slots__} - {"_config", "_last_result", "_packed", "_params", "changed", "heard"}))
_facts = attrgetter(*COMPARED)


_SILENT, _NONE = Policy(), ev.Answer("NONE")


class ExperimentJudge:
    """Receives every record as it becomes durable. ``state`` is the result of the journal so far."""

    def __init__(self, schedule: ExperimentSchedule, refused: Set[tuple[str, str]]) -> None:
        self._schedule = schedule
        self._refused = refused  # exploits that found no checkpoint: the trial and the exploit's mark
        self.state = ExperimentState()
        self.answers: list[tuple[str, str, ev.Answer]] = []  # the policy's, in the order of the journal
        self.told: Counter[tuple[str, int, int]] = Counter()  # results that callbacks received: trial, life, number
        self.ends_told: Counter[tuple[str, int]] = Counter()
        self._reported: set[tuple[str, int, int]] = set()
        self._stopped = self._failed = self._idled = False  # by this driver
        self._touched: set[str] = set()
        self._finished: set[str] = set()  # trials whose runs ended well
        self._began = self._last = self._spent = 0.0

    def driver_is_gone(self) -> None:
        self._spent, self._began = self._spent + self._last - self._began, self._last

    def take_in(self, kind: str, body: dict[str, Any], now: float) -> None:
        event = event_of(kind, body)
        if event is None:
            return
        answer: ev.Answer | None = getattr(event, "answer", _NONE)
        if answer is not _NONE:
            name = "Ended" if kind == "Skipped" else kind
            self.answers.append((name, body.get("trial", ""), answer or ev.CONTINUE))
        before = self.state.trials.get(getattr(event, "trial", ""))
        match event:
            case ev.Began():
                self._stopped = self._failed = self._idled = False
                self._began = self._last = now
            case ev.Added(trial=id):
                number = len(self.state.trials)
                expect(before is None, "a trial is added once", id)
                expect(id == f"t_{number:05d}", "no trial is forgotten", f"{id} is number {number}")
                expect(not self._stopped, "nothing is added after a stop", id)
                self._check_count(number)
            case ev.Started(trial=id):
                expect(before is not None and not before.has_ended, "only what has not ended starts", id)
                expect(before is not None and before.status != RUNNING, "a trial starts once at a time", id)
                expect(not self._stopped, "nothing starts after a stop", id)
                expect(id not in self._finished, "what has finished does not run again", id)
                mark = (id, f"x{before.exploits + 1}") if before is not None and before.donor is not None else None
                expect(mark is None or mark in self._refused, "an exploit that is possible is done", id)
                expect(not self._failed, "nothing starts after a failure with fail_fast", id)
                self._idled = False
                self._check_budget(now)
            case ev.Reported():
                self._check_report(event, before)
            case ev.Exploited(trial=id):
                expect(before is not None and before.donor is not None, "an exploit was asked for", id)
                expect(event.config == before.donor.config, "it has the config that was asked for", id)  # type: ignore
            case ev.Ended(trial=id) | ev.Skipped(trial=id):
                expect(before is not None and not before.has_ended, "a trial ends once", id)
                if isinstance(event, ev.Ended):
                    self._check_end(event, before)
            case ev.Resumed(trial=id):
                expect(before is not None, "only a known trial is resumed", id)
                self._finished.discard(id)
            case ev.OfTrial(trial=id, kind="RunEnded"):
                if event.body["outcome"] == "finished":
                    self._finished.add(id)
            case ev.Idled():
                self._idled = True
            case ev.StopDecided():
                self._stopped = True
            case ev.Over():
                expect(not self.state.live, "all trials have ended when it is over", f"{list(self.state.live)}")
            case _:
                pass
        self._last = now
        replay(self.state, event, now, _SILENT)
        if getattr(event, "trial", None) is not None:
            self._touched.add(event.trial)  # type: ignore[attr-defined]

    def _check_budget(self, now: float) -> None:
        if self._schedule.stopper == "budget":
            spent, late = self._spent + now - self._began, 1.0 + 3 * self._schedule.storage_s
            expect(spent <= self._schedule.budget_s + late, "no trial starts behind the time budget", f"{spent:.1f} s")

    def _check_end(self, event: ev.Ended, trial: Trial | None) -> None:
        self._failed = self._failed or (bool(event.error) and self._schedule.fail_fast)
        given_up = event.reason == NEVER_RESUMED
        lawful = not given_up or (self._idled and trial is not None and trial.status != RUNNING)
        expect(lawful, "the scheduler is asked before paused trials are given up", event.trial)
        expect("from outside" not in event.error, "what the experiment stops does not fail", event.trial)

    def _check_count(self, number: int) -> None:
        schedule = self._schedule
        most = schedule.num_samples * (2 if schedule.searcher == "grid" else 1)
        expect(number < most, "there are num_samples trials", f"number {number} of {most}")

    def _check_report(self, event: ev.Reported, trial: Trial | None) -> None:
        assert trial is not None
        who = f"{trial} {event.iteration}"
        expect(trial.status == RUNNING and not trial.awaits, "only what runs reports", f"{who}: {trial.status}")
        expect(event.iteration == trial.heard + 1, "no result is lost or repeated", f"{who} after {trial.heard}")
        lineage = event.metrics["lineage"]
        expect(len(lineage) == event.iteration, "a result is of its own history", f"{who}: {lineage}")
        expect(lineage[-1] == f"{trial.config.get('x', 0.0):.6f}", "a result is of the config", f"{who}: {lineage}")
        self._reported.add((trial.trial_id, trial.life, event.iteration))

    # The live state

    def compare(self, live: ExperimentState, everything: bool = False) -> None:
        """Check that all durable state agrees with the journal, for the trials that it has mentioned since the last
        call."""
        mine = self.state
        expect(list(mine.trials) == list(live.trials), "a replay has the same trials", "")
        for id in live.trials if everything else self._touched:
            self._compare_trial(mine.trials[id], live.trials[id])
        self._touched.clear()
        for name in ("stopping", "epoch", "is_over"):
            same = getattr(mine, name) == getattr(live, name)
            expect(same, "a replay comes to the live state", f"{name}: {getattr(mine, name)}, {getattr(live, name)}")
        expect(list(mine.live) == list(live.live), "a replay has the same live trials", "")
        expect(list(mine.awaiting) == list(live.awaiting), "a replay awaits the same", f"{mine.awaiting}")

    def _compare_trial(self, replayed: Trial, live: Trial) -> None:
        same = _facts(replayed) == _facts(live) and replayed.config == live.config
        if same and replayed.last_result == live.last_result:
            return
        for name in (*COMPARED, "config", "last_result"):
            mine, theirs = getattr(replayed, name), getattr(live, name)
            expect(mine == theirs, "a replay comes to the live state", f"{live}.{name}: {mine!r}, {theirs!r}")

    # Its end

    def check_finished(self) -> None:
        state, schedule = self.state, self._schedule
        expect(state.is_over, "an experiment that finished says so", "")
        unended = [trial for trial in state.trials.values() if trial.status not in (TERMINATED, ERROR)]
        expect(not unended, "all trials have ended", f"{unended}")
        if schedule.counts_all:
            wanted = schedule.num_samples * (2 if schedule.searcher == "grid" else 1)
            expect(state.count == wanted, "there are num_samples trials", f"{state.count} of {wanted}")
        untold = self._reported - set(self.told)
        untold = {(id, life, n) for id, life, n in untold if life == state.trials[id].life}
        expect(not untold, "callbacks hear of every result", f"{sorted(untold)}")
        for id, trial in state.trials.items():
            expect(self.ends_told[id, trial.life] > 0, "callbacks hear of every end", id)
            if trial.status == TERMINATED and not trial.reason:
                length = schedule.fate(int(id.rpartition("_")[2])).length
                last = max(trial.last_result.get("training_iteration", 0), trial.checkpoint_number or 0)
                expect(last >= length, "a trial that came to its end has all its results", f"{id}: {last} of {length}")
