"""The fixture ``holdfast_drill`` for pytest: a drill as a test.

def test_recovers(holdfast_drill):
    holdfast_drill("train.py", "--epochs", "3", faults=["worker-kill@step=2", "driver-kill"]).check()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.drill.rehearsal import DrillReport


@pytest.fixture
def holdfast_drill() -> Callable[..., DrillReport]:
    """A fixture: ``holdfast_drill(script, *args, faults=(), seed=0, timeout_s=None) -> DrillReport``.

    ``report.check()`` fails the test unless every fault passed, and prints the table and what to fix. Without
    ``faults``, it tries all of them.
    """

    def run(
        script: Any, *args: str, faults: Sequence[str] = (), seed: int = 0, timeout_s: float | None = None
    ) -> DrillReport:
        from holdfast.drill.faults import parse
        from holdfast.drill.rehearsal import Rehearsal

        addresses = [parse(fault) for fault in faults]
        return Rehearsal(str(script), args, seed=seed, addresses=addresses, timeout_s=timeout_s).run()

    return run
