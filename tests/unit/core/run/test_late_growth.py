"""An attempt of which a rank has returned is not made larger: all that the rank did would be repeated."""

from __future__ import annotations

import pytest

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.state import Attempt, Durable, Phase, Rank, Ranks, RankStatus, RunSpec, RunState


@pytest.mark.parametrize(("first", "grows"), [(RankStatus.RUNNING, True), (RankStatus.RETURNED, False)])
def test_a_node_joins(first: RankStatus, grows: bool) -> None:
    spec = RunSpec(num_workers=3, min_workers=1, resize_interval_s=0.0)
    ranks = (Rank(first), Rank(RankStatus.RUNNING))
    state = RunState(
        Durable(spec, attempt_number=1, attempt_size=2), Attempt(Ranks(ranks), 0.0), Phase.RUNNING, capacity=2
    )
    _, commands, _ = core.step(state, ev.Capacity(3), 100.0)
    assert any(isinstance(command, do.AskHandover) for command in commands) == grows
