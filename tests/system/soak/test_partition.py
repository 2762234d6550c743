"""A link is cut and both ends live on: never do two attempts train at once, and the run ends right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.soak.soak_plan import Fault, Plan
from support.soak.soak_run import Ended, SoakRun
from support.soak.soak_switch import switch
from support.soak.soak_verdict import judge

CUT_FOR_S = 60.0  # longer than the run takes, which continues without that node


def go(home: Path, *faults: Fault) -> Ended:
    """Ranks do not wait for each other, so the one that is cut off trains on; a third node is in reserve."""
    plan = Plan(
        seed=0,
        torch=False,
        switched=True,
        workers=2,
        nodes=(1, 1, 1),
        samples=120,
        batch=8,
        epochs=7,
        every=1,
        asks=False,
        in_step=False,
        resize_s=0.0,
        grace_s=0.0,
        placement="PACK",
        pause_s=0.05,
        hang_s=120.0,  # to wait for the cut is no hang
        waits_at=20,
        faults=faults,
    )
    with switch(os.getpid() % (64 * 256), ports=3) as made:
        run = SoakRun(plan, home, made.ports).go()
    assert judge(run, home, None) == []
    return run


def check_rank_0_was_alone_and_then_gone(run: Ended) -> None:
    cut = run.struck[0].time
    first, second = run.notes.in_order
    alone = [step for step in first.steps if step.rank == 0 and step.time > cut + 1.0]
    assert alone, "the rank that was cut off did not train on, so this shows nothing"
    assert max(step.time for step in alone) < second.first < cut + CUT_FOR_S


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["link cut", "link cut one way"])
def test_two_attempts_never_train_at_once(kind: str, tmp_path: Path) -> None:
    run = go(tmp_path / "home", Fault(kind, part=0.1, after_s=0.0, lasts_s=CUT_FOR_S, of_rank=0))
    check_rank_0_was_alone_and_then_gone(run)


@pytest.mark.timeout(900)
def test_nor_when_the_driver_is_killed_meanwhile(tmp_path: Path) -> None:
    """The next driver is not even told of the node that is cut off, and has two others."""
    cut = Fault("link cut", part=0.1, after_s=0.0, lasts_s=CUT_FOR_S, of_rank=0, forgotten=True)
    run = go(tmp_path / "home", cut, Fault("driver killed", part=0.1, after_s=0.3, at_once=True))
    check_rank_0_was_alone_and_then_gone(run)
    told = (tmp_path / "home/driver-2.log").read_text()
    assert "waiting until no worker of the last attempt can be left on node-" in told


@pytest.mark.timeout(900)
def test_nothing_is_waited_for_when_all_nodes_come_back(tmp_path: Path) -> None:
    go(tmp_path / "home", Fault("driver killed", part=0.1, after_s=0.0))
    assert "waiting" not in (tmp_path / "home/driver-2.log").read_text()
