"""What a killed agent had not passed on is read from the logs of its ranks."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable, RunState
from holdfast.driver.effects import CallBack, Effect, ReadLogs
from holdfast.driver.inbound import Inbound
from holdfast.driver.reports import ReportBook
from holdfast.store import report_log
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import line
from holdfast.store.report_log import ReportLog
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Report


def test_a_rank_that_had_returned_holds_up_no_callback(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    effects: list[Effect] = []
    book = ReportBook(effects.append, calls_back=True)
    book.begin(1, 2, 0)
    book.add(wire.Reports(1, 0, [Report(index, line(index, 1.0, {})) for index in range(3)]))
    log = ReportLog(layout.report_log(1, 1))
    log.append(line(0, 1.0, {}))
    log.returned()
    log.close()
    attempts = SimpleNamespace(report_log=layout.report_log, node_of=lambda *_: "node")
    known: Any = SimpleNamespace(
        attempts=attempts, book=book, queue=deque(), run=RunState(Durable(attempt_number=1)), effects=effects
    )
    startup: Any = None
    inbound = Inbound(known, startup, lambda: None)
    inbound._unheard = {(1, 1)}
    inbound._hear_attempt_end(1)
    assert ReadLogs(1, {1: layout.report_log(1, 1)}) in effects
    assert not known.queue, "the attempt is not gone before its logs are read"
    inbound.take_logs(1, {1: report_log.parse(report_log.read(layout.report_log(1, 1)))})
    book.call_back({})
    assert [effect.number for effect in effects if isinstance(effect, CallBack)] == [1, 2, 3]
    assert list(known.queue) == [ev.Progressed(1, 1, 1), ev.WorkerReturned(1, 1), ev.AttemptGone(1)]
