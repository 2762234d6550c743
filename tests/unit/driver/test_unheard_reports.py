"""What a killed agent had not passed on is read from the logs of its ranks."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable, RunState
from holdfast.driver.ears import Ears
from holdfast.driver.reports import ReportBook
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import line
from holdfast.store.report_log import ReportLog
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Report


def test_a_rank_that_had_returned_holds_up_no_callback(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    told: list[int] = []
    book = ReportBook(lambda: layout, lambda number, *_: told.append(number))
    book.begin(1, 2, 0)
    book.add(wire.Reports(1, 0, [Report(index, line(index, 1.0, {})) for index in range(3)]))
    log = ReportLog(layout.report_log(1, 1))
    log.append(line(0, 1.0, {}))
    log.returned()
    log.close()
    fleet = SimpleNamespace(report_log=layout.report_log, node_of=lambda *_: "node")
    desk: Any = SimpleNamespace(fleet=fleet, book=book, queue=deque(), state=RunState(Durable(generation=1)))
    desk.display = SimpleNamespace(progress=lambda *_: None)
    beginning: Any = None
    ears = Ears(desk, beginning, lambda: None)
    ears._unheard = {(1, 1)}
    ears._hear_group_end(1)
    book.call_back({})
    book.close()
    assert told == [1, 2, 3]
    assert list(desk.queue) == [ev.Progressed(1, 1, 1), ev.WorkerReturned(1, 1), ev.GroupGone(1)]
