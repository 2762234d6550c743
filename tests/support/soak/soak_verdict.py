"""Whether a run of the soak came out right, and what each fault cost: from the workers' notes and the final checkpoint.

Surviving history is what no later attempt did again: of each attempt, the steps up to the one that the next attempt
resumed from.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.runs.stored_experiment import load
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from support.soak.soak_notes import Attempt, Step
from support.soak.soak_run import Ended, Struck


@dataclass(frozen=True)
class Cost:
    """Of one fault. ``next_step_s``: until the first step beyond all those that were made before it."""

    kind: str
    next_step_s: float | None
    lost: int


def judge(run: Ended, home: Path, reference: dict[str, Any] | None) -> list[str]:
    """What is wrong, in words; ``reference`` is the outcome of the undisturbed run, if it must be the same."""
    if not run.outcome:
        return [*run.wrong, "the driver told no outcome"]
    rows = [row["step"] for row in load(home / "run").rows]
    parts, whole = run.outcome["ledger"]
    wrong = list(run.wrong)
    if rows != list(range(1, run.plan.steps + 1)):
        wrong.append(f"the history has the steps {rows}")
    if not math.isclose(parts, whole, abs_tol=1e-3):
        wrong.append(f"the ledger has {parts} s of {whole} s")
    if run.outcome["threads"]:
        wrong.append(f"the driver ends with threads: {run.outcome['threads']}")
    if reference is not None and run.outcome["value"] != reference["value"]:
        wrong.append("the weights are not those of the undisturbed run")
    if reference is not None and run.plan.is_fixed and shards(run.outcome) != shards(reference):
        wrong.append("the final checkpoint is not that of the undisturbed run")
    return [*wrong, *wrong_samples(run), *wrong_attempts(run), *wrong_handovers(run, home)]


def shards(outcome: dict[str, Any]) -> dict[str, str]:
    """What the ranks of a plain run saved last. Files of torch have their own name within."""
    files = sorted(Path(outcome["path"]).glob("*.json"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def surviving(attempts: list[Attempt]) -> list[tuple[Attempt, Step]]:
    found: list[tuple[Attempt, Step]] = []
    limit = math.inf
    for attempt in reversed(attempts):
        found += [(attempt, step) for step in attempt.steps if attempt.base < step.number <= limit]
        limit = min(limit, attempt.base)
    return found


def sample_counts(run: Ended) -> tuple[int, int]:
    """How many samples are missing in the surviving history, and how many are there more than once."""
    missing = repeated = 0
    seen = Counter((step.epoch, n) for _, step in surviving(run.notes.in_order) for n in step.samples)
    for epoch in range(run.plan.epochs):
        counts = [seen[epoch, sample] for sample in range(run.plan.samples)]
        missing += counts.count(0)
        repeated += sum(count - 1 for count in counts if count)
    return missing, repeated


def wrong_samples(run: Ended) -> list[str]:
    missing, repeated = sample_counts(run)
    return [f"{missing} samples missing, {repeated} repeated"] if missing or repeated else []


def wrong_attempts(run: Ended) -> list[str]:
    attempts, wrong = run.notes.in_order, []
    for before, after in pairwise(attempts):
        if before.last >= after.first:
            over = before.last - after.first
            wrong.append(
                f"attempts {before.attempt_number} and {after.attempt_number} trained at once for {over:.3f} s"
            )
    for attempt in attempts:
        if len(set(attempt.starts.values())) > 1:
            wrong.append(f"the ranks of attempt {attempt.attempt_number} went on from steps {attempt.starts}")
        if not run.plan.least <= attempt.world <= run.plan.most:
            wrong.append(f"attempt {attempt.attempt_number} had {attempt.world} workers")
    if len(run.notes.worlds) != len(attempts):
        wrong.append(f"ranks of one attempt were told of different sizes: {sorted(run.notes.worlds)}")
    return wrong


def wrong_handovers(run: Ended, home: Path) -> list[str]:
    """An attempt that ended as planned, for more workers or before its nodes went, costs no step."""
    planned = {r.body["generation"] for r in journal.read(RunLayout(home / "run"))[0] if r.kind == "HandedOver"}
    killed = [s.time for s in run.struck if s.fault.kind in ("driver killed", "any process killed")]
    return [
        f"the planned end of attempt {before.attempt_number} cost {before.reached - after.base} steps"
        for before, after in pairwise(run.notes.in_order)
        if before.attempt_number in planned
        and before.reached > after.base
        and not any(before.first < time < after.first for time in killed)
    ]


FIRST_OF_TWO, SECOND_OF_TWO = "with another fault right after it", "right after another fault"


def costs(run: Ended) -> list[Cost]:
    """A fault that strikes before the run has recovered from another is no fault of its kind."""
    found: list[Cost] = []
    for number, struck in enumerate(run.struck):
        until = run.struck[number + 1].time if number + 1 < len(run.struck) else math.inf
        one = cost(run, struck, until)
        if found and found[-1].kind == FIRST_OF_TWO and one.kind != FIRST_OF_TWO:
            one = replace(one, kind=SECOND_OF_TWO)
        found.append(one)
    return found


def cost(run: Ended, struck: Struck, until: float) -> Cost:
    """Of the attempts that began after it and before the next fault; if there are none, it ended no attempt."""
    attempts, kind = run.notes.in_order, struck.fault.kind
    later = [attempt for attempt in attempts if struck.time < attempt.first < until]
    lost = sum(max(0, before.reached - after.base) for before, after in pairwise(attempts) if after in later)
    rank_0 = [(attempt, step) for attempt in attempts for step in attempt.steps if step.rank == 0]
    made = max((step.number for _, step in rank_0 if step.time <= struck.time), default=0)
    new = [step.time for _, step in rank_0 if step.number > made and step.time > struck.time]
    by_later = [step.time for attempt, step in rank_0 if step.number > made and attempt in later]
    at = min(by_later if later else new, default=math.inf)
    lived_on = until == math.inf or any(
        attempt.first < struck.time and attempt.last > until + 1.0 for attempt in attempts
    )
    if at < until and (later or lived_on):
        return Cost(kind if later else f"{kind}, no attempt ended", at - struck.time, lost)
    return Cost(FIRST_OF_TWO if until < math.inf else f"{kind}, at the end", None, lost)
