"""For a trainer inside a trial: reports of its workers become reports of the trial."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from holdfast.train.api import report, session_for
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.user_callback import TrainRunContext, UserCallback

CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """Reports the metrics of a trainer's run to the trial that started it. Pass it to the inner trainer's
    ``RunConfig(callbacks=[...])``.

    It reports rank 0's metrics. A checkpoint stays in the inner run's storage, and its path is in the metrics as
    ``checkpoint_path``.
    """

    def __init__(self) -> None:
        session_for("TuneReportCallback")

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        told = dict(metrics[0])
        if checkpoint is not None:
            told[CHECKPOINT_PATH_KEY] = checkpoint.path
        with _ended_by_sigterm():
            report(told)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A trial is stopped in its report. This one is made by the inner run's driver, to which a SIGTERM is a request to
    look at later: it would continue waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
