"""In lockstep report() returns when the driver says so, and neither before nor never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.wire import messages as wire
from support.node import trial_work
from support.node.agent_at_work import AgentAtWork, agent, is_gone, wait_until

RUN = 5


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[AgentAtWork]:
    with agent(tmp_path / "own") as at_work:
        yield at_work


@pytest.fixture
def begin(shared: AgentAtWork, tmp_path: Path) -> Callable[[Callable[[], Any]], int]:
    def begin_trial(work: Callable[[], Any]) -> int:
        shared.open(RUN, tmp_path / "trial", work, lockstep=True)
        (pid,) = shared.start(RUN)
        return pid

    return begin_trial


def go_on(shared: AgentAtWork, index: int) -> None:
    shared.order(RUN, wire.GoOn(1, 0, index))


def indices(shared: AgentAtWork, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [report.index for report in shared.take(wire.Reports, RUN).reports]
    return found


def waits_in_report(shared: AgentAtWork) -> bool:
    shared.order(RUN, wire.DumpStacks(1))
    return "_await_go_on" in shared.take(wire.Stacks, RUN).texts[0]


def returned(shared: AgentAtWork) -> Any:
    value = cloudpickle.loads(shared.take(wire.WorkerHasReturned, RUN).body)
    shared.take(wire.WorkersGone, RUN)
    shared.close(RUN)
    return value


Begin = Callable[[Callable[[], Any]], int]


def test_each_report_waits_for_its_answer(shared: AgentAtWork, begin: Begin) -> None:
    begin(trial_work.report_thrice)
    for index in range(3):
        assert indices(shared, 1) == [index]
        wait_until(lambda: waits_in_report(shared), "the wait in report()")
        assert not [said for said in shared.seen if isinstance(said.message, wire.Reports)]
        go_on(shared, index - 1)  # an older one's changes nothing
        assert waits_in_report(shared)
        go_on(shared, index)
    assert returned(shared) == "done"


def test_an_answer_ahead_of_its_report_counts(shared: AgentAtWork, begin: Begin) -> None:
    begin(trial_work.report_thrice)
    go_on(shared, 2)
    assert indices(shared, 3) == [0, 1, 2]
    assert returned(shared) == "done"


def test_reports_of_two_threads(shared: AgentAtWork, begin: Begin) -> None:
    begin(trial_work.report_in_threads)
    assert indices(shared, 2) == [0, 1]
    go_on(shared, 1)
    assert returned(shared) == "done"


@pytest.mark.parametrize("durable_first", [True, False])
def test_a_report_that_also_waits_until_it_is_durable(shared: AgentAtWork, begin: Begin, durable_first: bool) -> None:
    begin(trial_work.report_durably)
    asked = shared.take(wire.Asked, RUN)
    reply = wire.Reply(1, 0, asked.request.request, cloudpickle.dumps(None))
    for order in (reply, wire.GoOn(1, 0, 0)) if durable_first else (wire.GoOn(1, 0, 0), reply):
        shared.order(RUN, order)
    assert returned(shared) == "done"


def test_a_notice_is_heard_meanwhile(shared: AgentAtWork, begin: Begin) -> None:
    begin(trial_work.report_thrice)
    assert indices(shared, 1) == [0]
    wait_until(lambda: waits_in_report(shared), "the wait in report()")  # before that it may not have counted it
    shared.order(RUN, wire.Notice(1, None, {"node-0": [0]}))
    assert shared.take(wire.WorkerNoticed, RUN).reports == 1
    go_on(shared, 0)
    shared.order(RUN, wire.HandoverAt(1, 1))  # until then it does not report again
    assert indices(shared, 1) == [1]
    go_on(shared, 2)
    assert returned(shared) == "done"


def test_a_signal_is_handled_meanwhile(shared: AgentAtWork, begin: Begin) -> None:
    begin(trial_work.clean_up_on_a_signal)
    assert indices(shared, 1) == [0]
    wait_until(lambda: waits_in_report(shared), "the wait in report()")
    shared.order(RUN, wire.StopWorkers(1, graceful=True))
    assert shared.take(wire.Output, RUN).lines[0] == "cleaned up"
    shared.take(wire.WorkersGone, RUN)
    shared.close(RUN)


@pytest.mark.parametrize("how", ["close the run", "kill the agent"])
def test_a_worker_that_waits_ends_with_its_run(shared: AgentAtWork, begin: Begin, how: str) -> None:
    pid = begin(trial_work.report_thrice)
    assert indices(shared, 1) == [0]
    if how == "close the run":
        shared.close(RUN, over=False)
    else:
        shared.process.kill()
    wait_until(lambda: is_gone(pid), "the worker's end")
