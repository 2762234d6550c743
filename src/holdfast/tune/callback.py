"""The public path of callbacks of experiments."""

from holdfast.trackers.trial_callback import Callback, Trial

__all__ = ["Callback", "Trial"]
