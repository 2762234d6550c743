"""What becomes of the trials of an earlier driver."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.trial import ERROR, Trial


class Resumption(Struct, frozen=True):
    """Each is "resume", "restart" or "skip"; which one counts for a trial is by how it was left."""

    unfinished: str = "resume"
    errored: str = "skip"
    finished: str = "skip"

    def of(self, trial: Trial) -> ev.Event | None:
        """What happens to it now; None if it stays as it is, or continues as it would anyhow."""
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
