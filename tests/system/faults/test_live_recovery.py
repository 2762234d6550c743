"""A rank of a DDP training is killed at any place of a step: it alone is replaced, and no step is done twice."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from holdfast import LocalCluster
from holdfast.core.run import events as ev
from support.elastic.elastic_job import wait_until
from support.faults.live_training import (
    PLACES,
    Kill,
    check_that_no_step_was_lost,
    events_of,
    processes_left,
    steps_of,
    trained,
    weights,
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be busy with other things."""
    monkeypatch.setenv("HOLDFAST_REGROUP_TIMEOUT_S", "120")
    monkeypatch.setenv("HOLDFAST_STOPPED_GRACE_S", "0.2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    trained(directory, 3, [])
    return directory


def test_ranks_are_killed_at_every_place_of_a_step(tmp_path: Path, undisturbed: Path) -> None:
    kills: list[Kill] = [(number % 3, 9 * number + 4, place) for number, place in enumerate(PLACES)]
    kills += [(0, 70, "before"), (2, 70, "forward"), (1, 90, "backward"), (2, 90, "backward")]  # two of three
    result = trained(tmp_path, 3, kills)
    check_that_no_step_was_lost(tmp_path, 3, kills, undisturbed)
    assert len(result.ledger.failures) == len(kills)
    assert all(failure.live for failure in result.ledger.failures)


def test_standbys_take_the_place_of_lost_ranks_and_may_be_lost_themselves(tmp_path: Path, undisturbed: Path) -> None:
    kills: list[Kill] = [(1, 15, "backward"), (0, 30, "standby"), (0, 40, "update"), (2, 60, "before")]
    result = trained(tmp_path, 3, kills, standby_workers=1)
    check_that_no_step_was_lost(tmp_path, 3, kills, undisturbed)
    told = events_of(tmp_path)
    assert [body["by_standby"] for kind, body in told if kind == ev.Regrouped.__name__] == [[1], [0], [2]]
    assert [kind for kind, _ in told].count(ev.StandbyLost.__name__) == 1
    assert all(failure.standby for failure in result.ledger.failures)


def test_a_stopped_rank_is_killed_and_replaced(tmp_path: Path, undisturbed: Path) -> None:
    kills: list[Kill] = [(1, 15, "backward")]
    trained(tmp_path, 3, kills, signal=signal.SIGSTOP)
    check_that_no_step_was_lost(tmp_path, 3, kills, undisturbed)


def test_ranks_of_a_node_that_is_taken_away_move_to_another_one(tmp_path: Path, undisturbed: Path) -> None:
    with LocalCluster() as cluster:
        for _ in range(4):
            cluster.add_node(cpus=1)

        def drain() -> None:
            node = tmp_path / "notes" / "node-1"
            wait_until(lambda: node.exists() and bool(node.read_text()), "rank 1 had begun")
            wait_until(lambda: len(_updates(tmp_path, 1)) > 10, "rank 1 had made some steps")
            cluster.drain_node(node.read_text(), deadline_s=300)

        drained = threading.Thread(target=drain)
        drained.start()
        result = trained(tmp_path, 3, [], engine=cluster, waits_at=100)
        drained.join(60)
    check_that_no_step_was_lost(tmp_path, 3, [], undisturbed)
    told = events_of(tmp_path)
    assert [body["rank"] for kind, body in told if kind == ev.RankMoved.__name__] == [1]
    assert ev.HandedOver.__name__ not in [kind for kind, _ in told]
    assert not result.ledger.failures


def _updates(directory: Path, rank: int) -> list[str]:
    notes = directory / "notes" / f"updates-{rank}"
    return notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.soak
def test_the_tiers_of_one_run(tmp_path: Path, undisturbed: Path) -> None:
    """A lost rank is replaced live; when all are lost, the next attempt resumes from memory, and is live again."""
    kills: list[Kill] = [(1, 15, "backward"), *((rank, 40, "forward") for rank in range(3)), (0, 60, "update")]
    result = trained(tmp_path, 3, kills, snapshots=True)
    assert [kind for kind, _ in events_of(tmp_path)].count(ev.AttemptStarted.recorded_as) == 2
    entries = result.ledger.failures
    assert entries[0].live
    assert entries[-1].live
    restarted = [entry for entry in entries if entry.tier]
    assert {entry.tier for entry in restarted} == {"memory"}
    assert all(entry.repeated <= 1 for entry in restarted)
    for ours, theirs in zip(weights(tmp_path, 3), weights(undisturbed, 3), strict=True):
        assert [name for name in ours if "running" not in name and not ours[name].equal(theirs[name])] == []
    assert not processes_left(tmp_path)


def test_all_ranks_lost_is_a_restart_from_the_last_checkpoint(tmp_path: Path) -> None:
    steps = steps_of(2)
    kills: list[Kill] = [(rank, steps - 3, "forward") for rank in range(2)]
    result = trained(tmp_path, 2, kills)
    assert result.metrics is not None
    assert result.metrics["steps"] == steps
    assert [kind for kind, _ in events_of(tmp_path)].count(ev.AttemptStarted.recorded_as) == 2
