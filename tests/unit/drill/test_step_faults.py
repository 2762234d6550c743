"""Where within a training step a drill strikes: halfway between two reports, and halfway through the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.drill.faults import IN_REDUCTION, IN_UPDATE
from holdfast.drill.step_faults import StepFaults


class Parameter:
    requires_grad = True

    def __init__(self) -> None:
        self.hooks: list[Callable[[Any], None]] = []

    def register_hook(self, hook: Callable[[Any], None]) -> None:
        self.hooks.append(hook)


class Model:
    def __init__(self, count: int) -> None:
        self.all = [Parameter() for _ in range(count)]

    def parameters(self) -> list[Parameter]:
        return self.all


class Loop:
    """A train function of so many gradients in an update, as a watch sees it."""

    def __init__(self, gradients: int) -> None:
        self.updates, self.came = 0, []
        self.on_model: Callable[[Any], None]
        self.on_update: Callable[[], None]
        self.faults = StepFaults(self, self._come_to)  # type: ignore[arg-type]
        self.model, self.known = Model(gradients), 0
        self.on_model(self.model)

    came: list[tuple[str, int, int]]  # the point, after so many updates and gradients

    def _come_to(self, point: str) -> None:
        self.came.append((point, self.updates, self.known))

    def run(self, updates: int) -> list[tuple[str, int, int]]:
        """Until the next report."""
        self.came.clear()
        for _ in range(updates):
            for known, parameter in enumerate(self.model.all, start=1):
                self.known = known
                for hook in parameter.hooks:
                    hook(None)
            self.on_update()
            self.updates += 1
        self.faults.reports()
        self.updates = 0
        return list(self.came)


def test_it_strikes_in_the_first_update_and_later_in_the_middle_one() -> None:
    loop = Loop(gradients=4)
    assert loop.run(5) == [(IN_REDUCTION, 0, 2), (IN_UPDATE, 0, 4)]
    assert loop.run(5) == [(IN_REDUCTION, 2, 2), (IN_UPDATE, 2, 4)]


def test_one_gradient_and_one_update_are_enough() -> None:
    loop = Loop(gradients=1)
    assert loop.run(1) == loop.run(1) == [(IN_REDUCTION, 0, 1), (IN_UPDATE, 0, 1)]
