"""What becomes of the trials of an earlier driver."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.experiment import events as ev
from holdfast.core.run.state import Outcome
from holdfast.runs.past import read_past
from holdfast.store.journal import Record
from holdfast.tune.schedulers.trial_scheduler import ERROR, PENDING

from .trial import Trial


@dataclass(frozen=True)
class Resumption:
    """Each is "resume", "restart" or "skip"; which one counts for a trial is by how it was left."""

    unfinished: str = "resume"
    errored: str = "skip"
    finished: str = "skip"

    def of(self, trial: Trial) -> ev.Event | None:
        """What happens to it now; None if it stays as it is, or goes on as it would anyhow."""
        how = self.unfinished
        if trial.has_ended:
            how = self.errored if trial.error and trial.status == ERROR else self.finished
        if trial.has_ended and how != "skip":
            return ev.Resumed(trial.trial_id, anew=how == "restart")
        if not trial.has_ended and how == "skip":
            return ev.Skipped(trial.trial_id)
        if not trial.has_ended and how == "restart":
            return ev.Resumed(trial.trial_id, anew=True)
        return None


def was_over(trial: Trial, records: list[Record]) -> bool:
    """Whether its run had come to an end, and the driver died before it could say what that means."""
    ended = read_past(records).ended
    return trial.status == PENDING and ended is not None and ended.outcome is Outcome.FINISHED
