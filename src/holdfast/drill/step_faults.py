"""Faults within a training step of torch: halfway between two reports, at a place where peers depend on this worker.

Only the worker that is to be struck is watched so closely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.drill.faults import IN_REDUCTION, IN_UPDATE
from holdfast.drill.watching import Watch


class StepFaults:
    """Says when the worker comes to a point in the middle one of the updates that lead to a report."""

    def __init__(self, watch: Watch, come_to: Callable[[str], None]) -> None:
        self._watch, self._come_to = watch, come_to
        self._before = 0  # updates that led to the last report
        self._known: list[int] = []  # by model, how many gradients there are for the next update
        watch.on_model = self._watch_gradients
        watch.on_update = self._update

    def reports(self) -> None:
        """It is about to make a report."""
        self._before = self._watch.updates

    def _update(self) -> None:
        self._known = [0] * len(self._known)
        self._come(IN_UPDATE)

    def _come(self, point: str) -> None:
        if self._watch.updates == self._before // 2:
            self._come_to(point)

    def _watch_gradients(self, model: Any) -> None:
        """When half of them are known, some buckets are being reduced, and the peers wait for the others."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        number = len(self._known)
        self._known.append(0)

        def note(_gradient: Any) -> None:
            self._known[number] += 1
            if self._known[number] == (len(trained) + 1) // 2:
                self._come(IN_REDUCTION)

        for parameter in trained:
            parameter.register_hook(note)
