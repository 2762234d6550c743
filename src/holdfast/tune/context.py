"""Which trial this is: what ``tune.get_context()`` returns in a trainable."""

from __future__ import annotations

from holdfast.train.api import session_for
from holdfast.train.context import TrainContext
from holdfast.tune.resources import PlacementGroupFactory


class TuneContext(TrainContext):
    """As ``train.get_context()``, with the trial's resources as they were asked for."""

    def get_trial_resources(self) -> PlacementGroupFactory:  # type: ignore[override]
        """The bundles of the trial; ``required_resources`` is their sum."""
        return PlacementGroupFactory(self._trial.get("bundles") or [{"CPU": 1.0}])


def get_context() -> TuneContext:
    """Who this trial is: its id, its name, its directory, its resources."""
    return TuneContext(session_for("get_context"))
