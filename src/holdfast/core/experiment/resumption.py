"""What happens to the trials of an earlier driver."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.trial import ERROR, Trial


class Resumption(Struct, frozen=True):
    """Each field is "resume", "restart" or "skip". The state in which a trial was left decides which field applies to
    it."""

    unfinished: str = "resume"
    errored: str = "skip"
    finished: str = "skip"

    def of(self, trial: Trial) -> ev.Event | None:
        """The event for the trial; None if it stays as it is or continues anyway."""
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
