"""An agent's report of a worker, a standby or a task that exited without returning, or could not be started."""

from __future__ import annotations

import os
import signal

from holdfast.node.watched_process import WatchedProcess
from holdfast.platform.cgroups import OomWatch
from holdfast.wire import messages as wire


def news_of(process: WatchedProcess, oom_watch: OomWatch) -> wire.RunNews:
    killed = os.WIFSIGNALED(process.status) if process.ended else False
    code = os.WEXITSTATUS(process.status) if process.ended and not killed else None
    number = os.WTERMSIG(process.status) if killed else None
    if process.task:
        how = process.raised.traceback if process.raised else f"it ended with code {code}, signal {number}"
        crashed = process.raised is None and not process.timed_out
        return wire.TaskDone(process.task, b"", how, timed_out=process.timed_out, crashed=crashed)
    if process.standby:
        how = f"signal {number}" if killed else f"exit code {code}"
        last = f", {process.last_lines[-1]}" if process.last_lines else ""
        return wire.StandbyHasEnded(process.attempt_number, process.standby, f"{how}{last}")
    oom = number == signal.SIGKILL and oom_watch.take_verdict(process.pid)
    where = (process.attempt_number, process.rank, process.raised, code, number)
    return wire.WorkerHasFailed(*where, process.started, oom, list(process.last_lines), process.joins)


def not_launched(attempt_number: int, rank: int, joins: int, task: str, standby: int, why: str) -> wire.RunNews:
    if task:
        return wire.TaskDone(task, b"", why, crashed=True)
    if standby:
        return wire.StandbyHasEnded(attempt_number, standby, why)
    return wire.WorkerHasFailed(attempt_number, rank, None, os.EX_OSERR, None, False, False, [why], joins)
