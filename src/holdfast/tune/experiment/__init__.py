"""A tuning experiment: a state machine over trials, whose state is a journal, and the loop that carries out its
decisions.

``Experiment`` and ``Trial`` are here for scripts from Ray, which import them from this path.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.tune.experiment.callback_trial import TrialForCallbacks as Trial
    from holdfast.tune.experiment.experiment_argument import Experiment

__all__ = ["Experiment", "Trial"]


def __getattr__(name: str) -> Any:
    """Imported late, because every module of this folder imports this one first."""
    if name == "Experiment":
        from holdfast.tune.experiment.experiment_argument import Experiment

        return Experiment
    if name == "Trial":
        from holdfast.tune.experiment.callback_trial import TrialForCallbacks

        return TrialForCallbacks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
