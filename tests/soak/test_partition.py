"""A link is cut and both ends live on: never do two groups train at once, and the run ends right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak_plan import Fault, Plan
from soak_run import SoakRun
from soak_switch import switch
from soak_verdict import judge

CUT_FOR_S = 60.0  # longer than the run takes, which goes on without that node


def plan(kind: str) -> Plan:
    """Ranks do not wait for each other, so the one that is cut off trains on; a third node is in reserve."""
    return Plan(
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
        faults=(Fault(kind, part=0.1, after_s=0.0, lasts_s=CUT_FOR_S),),
    )


@pytest.mark.soak  # once in five the run was over in one group: to be looked into before it is in the test run again
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["link cut", "link cut one way"])
def test_two_groups_never_train_at_once(kind: str, tmp_path: Path) -> None:
    with switch(os.getpid() % (64 * 256), ports=3) as made:
        run = SoakRun(plan(kind), tmp_path / "home", made.ports).go()
    assert judge(run, tmp_path / "home", None) == []
    (struck,) = run.struck
    first, second = run.notes.in_order
    alone = [step for step in first.steps if step.rank == 0 and step.time > struck.time + 1.0]
    assert alone, "the rank that was cut off did not train on, so this shows nothing"
    assert max(step.time for step in alone) < second.first < struck.time + CUT_FOR_S
