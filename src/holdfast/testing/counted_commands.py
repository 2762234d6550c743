"""Counts the decisions that schedules made the driver take. A fault that never leads to a decision tests nothing."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import timers
from holdfast.driver.kernel import StepTaken

from .schedule import Faults

COUNTED = {do.Rest, do.StartAttempt, do.SetTimer, do.CancelTimer}


def count(command: do.Command, turn: StepTaken, faults: Faults) -> None:
    if isinstance(command, do.Rest):
        faults.count("a node rested" if command.on else "a node came back from its rest")
    elif isinstance(command, do.StartAttempt) and any(p.id == command.resume for p in turn.after.carried):
        faults.count("an attempt resumed from what was staged")
    elif isinstance(command, do.SetTimer) and command.timer == timers.DOUBT:
        faults.count("a driver waited for the end of what it could not reach")
    elif isinstance(command, do.CancelTimer) and command.timer == timers.DOUBT and turn.before.doubted:
        faults.count("a node came back while it was waited for")
