"""The soak's judge finds what it is there for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from support.soak.soak_notes import Notes
from support.soak.soak_plan import Fault, Plan, draw
from support.soak.soak_run import Ended, Struck
from support.soak.soak_table import table
from support.soak.soak_verdict import costs, sample_counts, wrong_attempts, wrong_samples

PLAN: Plan = replace(draw(0), workers=(1, 2), samples=6, batch=2, epochs=1, switched=False)


def ended(path: Path, lines: list[list[object]], struck: list[Struck] | None = None) -> Ended:
    """Each line: kind, time, attempt, rank, world, and the rest."""
    (path / "notes").write_text("".join(json.dumps(line) + "\n" for line in lines))
    notes = Notes(path / "notes")
    notes.read_on()
    return Ended(PLAN, notes, struck or [], 1.0)


def attempt(attempt_number: int, at: float, base: int, batches: list[list[int]]) -> list[list[object]]:
    """Of one worker, which takes a second for each step."""
    start: list[object] = ["start", at, attempt_number, 0, 1, base, 1, "node-1"]
    steps = [["step", at + i, attempt_number, 0, 1, base + i, 0, batch] for i, batch in enumerate(batches, 1)]
    return [start, *steps]


def test_what_was_done_again_counts_once(tmp_path: Path) -> None:
    killed = Struck(Fault("worker killed", 0.0, 0.0), 2.5)
    run = ended(tmp_path, attempt(1, 0, 0, [[0, 1], [2, 3]]) + attempt(2, 5, 1, [[2, 3], [4, 5]]), [killed])
    assert wrong_samples(run) == wrong_attempts(run) == []
    (cost,) = costs(run)
    assert (cost.kind, cost.next_step_s, cost.lost) == ("worker killed", 4.5, 1)
    assert "| worker killed | 1 | 4.50 | 4.50 | 1 | 1 |" in table([cost], 0, 0)


def test_samples_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    run = ended(tmp_path, attempt(1, 0, 0, [[0, 1], [2, 3]]) + attempt(2, 5, 2, [[3, 4]]))
    assert sample_counts(run) == (1, 1)
    assert wrong_samples(run) == ["1 samples missing, 1 repeated"]


def test_two_attempts_at_once(tmp_path: Path) -> None:
    run = ended(tmp_path, attempt(1, 0, 0, [[0, 1], [2, 3]]) + attempt(2, 1.5, 1, [[2, 3], [4, 5]]))
    assert wrong_attempts(run) == ["attempts 1 and 2 trained at once for 0.500 s"]


def test_ranks_that_disagree(tmp_path: Path) -> None:
    lines = [["start", 0, 1, 0, 2, 0, 1, "node-1"], ["start", 0, 1, 1, 3, 4, 1, "node-1"]]
    steps, sizes = wrong_attempts(ended(tmp_path, lines))
    assert "went on from steps {0: 0, 1: 4}" in steps
    assert "different sizes" in sizes


def test_a_fault_that_ends_no_attempt(tmp_path: Path) -> None:
    struck = Struck(Fault("link cut for a moment", 0.0, 0.0), 1.5)
    (cost,) = costs(ended(tmp_path, attempt(1, 0, 0, [[0, 1], [2, 3], [4, 5]]), [struck]))
    assert (cost.kind, cost.next_step_s, cost.lost) == ("link cut for a moment, no attempt ended", 0.5, 0)
