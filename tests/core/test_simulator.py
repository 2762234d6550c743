"""Twenty thousand fault schedules hold every invariant; and a broken machine does not get past them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from holdfast.core import checkpointing, run
from holdfast.core import commands as do
from holdfast.core.state import Outcome, RunState, Verdict
from holdfast.testing import simulator
from holdfast.testing.schedule import KINDS

SCHEDULES = 20_000
SEEDS_FOR_A_MUTANT = 600


@pytest.mark.timeout(600)
def test_every_invariant_holds_in_every_schedule() -> None:
    total = simulator.simulate_many(0, SCHEDULES, processes=2)
    assert not total.broken, simulator.explain(total.broken[0].seed)
    assert total.schedules == SCHEDULES
    rare = {kind for kind in KINDS if total.faults.get(kind, 0) < 100}
    assert not rare, f"hardly ever tried: {rare}"
    assert set(total.outcomes) == {outcome.value for outcome in Outcome}


def test_a_seed_plays_the_same_run_every_time() -> None:
    for seed in range(20):
        first: list[str] = []
        second: list[str] = []
        assert simulator.simulate(seed, first) == simulator.simulate(seed, second)
        assert first == second


def counts_secondary_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, rank: int, evidence: Any) -> str:
        lives = turn.state.group_lives
        text = good(turn, rank, evidence)
        if not lives:
            turn.change(spent={**turn.state.spent, "failures": turn.state.spent.get("failures", 0) + 1})
        return text

    good = run._fail
    monkeypatch.setattr(run, "_fail", broken)


def commits_before_all_ranks_have_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "complete", lambda _self, _index: True)


def commits_before_the_files_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        pending = {i: structs.replace(p, sealed=p.staged) for i, p in turn.state.pending.items()}
        turn.change(pending=pending)
        good(turn)

    good = checkpointing.advance
    monkeypatch.setattr(checkpointing, "advance", broken)


def forgets_what_was_spent_when_a_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.change(spent={})
        return good(turn, event)

    good = run._driver_started
    monkeypatch.setitem(run._HANDLERS, run.ev.DriverStarted, broken)


def deletes_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(checkpoints: Any, spec: Any, pinned: Any) -> list[str]:
        gone = good(checkpoints, spec, pinned)
        return [max(checkpoints, key=lambda c: c.report).id] if gone else gone

    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", broken)


def deletes_what_the_group_resumed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", lambda *situation, **_: good(*situation, pinned=()))


def starts_without_verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_restore", run._proceed)


def retries_before_the_group_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.verdict is Verdict.RETRY and turn.state.phase is run.Phase.STOPPING:
            run._move(turn, "group gone")
            turn.change(pending={})
            run._settle(turn)
        return reason

    good = run._worker_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.WorkerFailed, broken)


def retries_once_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, kind: Any) -> tuple[str, int]:
        budget, limit = good(spec, kind)
        return budget, limit + 1 if limit >= 0 else limit

    good = run._budget
    monkeypatch.setattr(run, "_budget", broken)


def goes_on_before_the_last_checkpoint_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is run.Phase.SETTLING:
            turn.change(pending={})
        good(turn)

    good = run._settle
    monkeypatch.setattr(run, "_settle", broken)


def listens_to_groups_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.Turn, "is_current", lambda self, _generation: len(self.state.ranks) == 4)


def never_looks_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_look_for_a_hang", lambda _turn: None)


def leaves_the_manifest_of_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.Delete)]
        return reason

    good = run._storage_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.CommitFailed, broken)


def goes_back_to_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "newest", property(lambda _self: None))


MUTANTS = [
    counts_secondary_failures,
    commits_before_all_ranks_have_reported,
    commits_before_the_files_are_on_disk,
    forgets_what_was_spent_when_a_driver_starts,
    deletes_the_newest,
    deletes_what_the_group_resumed_from,
    starts_without_verifying,
    retries_before_the_group_is_gone,
    retries_once_too_often,
    goes_on_before_the_last_checkpoint_is_durable,
    listens_to_groups_that_are_gone,
    never_looks_for_a_hang,
    leaves_the_manifest_of_a_failed_commit,
    goes_back_to_the_beginning,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_broken_machine_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert simulator.simulate_range(0, SEEDS_FOR_A_MUTANT).broken, f"{SEEDS_FOR_A_MUTANT} schedules did not notice"


def test_a_broken_seed_is_told_with_its_last_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deletes_the_newest(monkeypatch)
    seed = simulator.simulate_range(0, SEEDS_FOR_A_MUTANT).broken[0].seed
    assert simulator.main(["--seed", str(seed), "--trace"]) == 1
    told = capsys.readouterr().out
    assert "GroupStarted(" in told
    assert f"seed {seed}: BROKEN 2 " in told
