"""The functions for a trainable: reports, its checkpoint, which trial it is.

Outside a trial these calls warn once and return None, as Ray's do, so that a script can call its trainable by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from holdfast.train import api
from holdfast.train.checks import warn_once
from holdfast.train.context import TrainContext
from holdfast.tune.resources import PlacementGroupFactory

P = ParamSpec("P")
T = TypeVar("T")


def _in_trial(function: Callable[P, T]) -> Callable[P, T | None]:
    name = function.__name__

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T | None:
        if _has_session():
            return function(*args, **kwargs)
        _warn(name)
        return None

    called.__module__ = __name__  # where a pickled trainable that names it finds it
    return called


def _has_session() -> bool:
    from holdfast.worker import session

    return session.has_current()


def _warn(name: str) -> None:
    remedy = "call it in the trainable that you pass to a Tuner"
    warn_once(f"tune.{name}", f"tune.{name}() outside a trial does nothing and returns None: {remedy}", stacklevel=4)


report = _in_trial(api.report)
get_checkpoint = _in_trial(api.get_checkpoint)


class TuneContext(TrainContext):
    """Like ``train.get_context()``, with the resources that the trial requested."""

    def get_trial_resources(self) -> PlacementGroupFactory:  # type: ignore[override]
        """The bundles of the trial; ``required_resources`` is their sum."""
        return PlacementGroupFactory(self._trial.get("bundles") or [{"CPU": 1.0}])


class _OutsideContext(TuneContext):
    """Answers every question with None."""

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("get_"):
            return super().__getattribute__(name)
        _warn(f"get_context().{name}")
        return lambda: None


def get_context() -> TuneContext:
    """Return the context of the current trial: its id, name, directory and resources."""
    return TuneContext(api.session_for("get_context")) if _has_session() else _OutsideContext()
