"""Outcomes made by hand, for tests of what is told from them: a run of ``steps`` reports, restored or not."""

from __future__ import annotations

from typing import Any

from holdfast.drill.drill_verdict import Finding, Seen, judge
from holdfast.drill.faults import Fault
from holdfast.drill.outcome import RunOutcome, SeenAttempt
from holdfast.drill.run_comparison import compare_all
from holdfast.drill.running import Take


def note(step: int, attempt_number: int = 1, **other: Any) -> dict[str, Any]:
    return {
        "step": step,
        "attempt": attempt_number,
        "offered": None if attempt_number == 1 else "checkpoint_000004",
        "asked": True,
        "opened": attempt_number > 1,
        "files": {"state.json": f"digest of {step}"},
        "in_memory": True,
        "steps": 2,
        "reduces": True,
        "batches": [f"batch {step}"],
        "rates": [[0.1 / step], [0.1 / step]],
        "schedules": [step],
        "random": {"torch": f"state {step}", "python": "never drawn from"},
        **other,
    }


def outcome(steps: int = 8, name: str = "run", workers: int = 2, **other: Any) -> RunOutcome:
    """Undisturbed."""
    return RunOutcome(
        name=name,
        began=0.0,
        finished=True,
        reason="",
        attempts=[SeenAttempt(1, 0, workers, None)],
        rows=[{"step": step, "loss": 1.0 / step} for step in range(1, steps + 1)],
        times={1: [float(step) for step in range(1, steps + 1)]},
        records={rank: {step: note(step) for step in range(1, steps + 1)} for rank in range(workers)},
        checkpoint=None,
        checkpoint_steps=list(range(1, steps + 1)),
        identity={"failure": {"max_failures": 3, "hang_timeout_s": "auto"}},
        **other,
    )


def restored(base: int = 4, steps: int = 8, **other: Any) -> RunOutcome:
    """The same run, of which the steps after ``base`` were made by a second attempt, with ``other`` in its notes."""
    run = outcome(steps)
    run.attempts.append(SeenAttempt(2, base, 2, f"checkpoint_{base:06d}"))
    run.times = {1: [float(step) for step in range(1, base + 3)], 2: [20.0 + step for step in range(steps - base)]}
    for notes in run.records.values():
        for step in range(base + 1, steps + 1):
            notes[step] = note(step, 2, **{key: value(step) for key, value in other.items()})
    return run


def findings(
    expected: RunOutcome, *found: RunOutcome, fault: Fault | None = None, code: int | None = 0, times: int = 1
) -> list[Finding]:
    """What is said of the run under a fault that struck at step 5."""
    struck = {"time": 5.0, "step": 5, "attempt": 1}
    fault = fault or Fault("worker-kill", step=5, point="before")
    differences = compare_all([expected], list(found))
    seen = Seen(fault, Take(code, times, 1.0), struck, [expected], list(found), differences, 60.0, "its last words")
    return judge(seen)
