"""The classes of failures: the evidence for each, how many of it a run survives, and what follows. One table for all.

The core counts and decides by it, errors name its settings, and docs/failure-classes.md shows it.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.run.state import Durable, RunSpec, Verdict

from .failures import FailureKind


class Budget(Struct, frozen=True):
    """How many failures of a class a run survives. If its setting is None, they count in the common budget."""

    counter: str  # its name in ``RunState.spent``
    setting: str  # a field of RunSpec, and of FailureConfig


class FailureClass(Struct, frozen=True):
    evidence: str
    budget: Budget
    then: str
    counts_in: str = ""  # shown on the docs page, where the name of the setting is not enough
    may_be_knock_on: bool = False  # so news of a lost node may still take its place as the first cause
    blames_node: bool = True  # it counts in ``bad_node_failures``
    costs_one_process: bool = False  # in a recoverable step, the rank alone can be replaced


_FAILURES = Budget("failures", "max_failures")
_NEXT = "next attempt"

CLASSES: dict[FailureKind, FailureClass] = {
    FailureKind.USER_ERROR: FailureClass(
        "the train function raised",
        _FAILURES,
        _NEXT,
        "`max_failures`; `max_same_errors` if it is the same at the same report",
        may_be_knock_on=True,
        blames_node=False,
    ),
    FailureKind.CRASH: FailureClass(
        "a signal, or an exit without returning", _FAILURES, _NEXT, may_be_knock_on=True, costs_one_process=True
    ),
    FailureKind.OUT_OF_MEMORY: FailureClass(
        "the kernel's OOM record, `MemoryError` or a subclass, or the framework's own exception for it",
        _FAILURES,
        _NEXT,
        costs_one_process=True,
    ),
    FailureKind.HANG: FailureClass(
        "no report for [`hang_timeout_s`](hangs.md), or stopped (SIGSTOP) for `HOLDFAST_STOPPED_GRACE_S`",
        Budget("hangs", "max_hang_failures"),
        f"stacks are taken, {_NEXT}",
        "`max_hang_failures`, else `max_failures`",
        may_be_knock_on=True,
        costs_one_process=True,
    ),
    FailureKind.START_UP: FailureClass(
        "ended before the train function was entered, or did not enter it within `HOLDFAST_START_TIMEOUT_S`",
        _FAILURES,
        _NEXT,
        may_be_knock_on=True,
        costs_one_process=True,
    ),
    FailureKind.NODE_LOST: FailureClass(
        "the agent ended or was cut off for `HOLDFAST_NODE_TIMEOUT_S`",
        _FAILURES,
        f"{_NEXT} on other nodes, or with fewer workers",
    ),
    FailureKind.PREEMPTED: FailureClass(
        "preempted before a checkpoint finished",
        Budget("preemptions", "max_preemption_failures"),
        f"{_NEXT} on other nodes",
        blames_node=False,
    ),
    FailureKind.STORAGE: FailureClass(
        "a checkpoint could not be stored, after `HOLDFAST_STORAGE_PATIENCE_S` for a bucket",
        Budget("storage", "max_failures"),
        f"on disk the {_NEXT}; for a bucket training continues, and the upload is retried",
        "its own count, up to `max_failures`",
    ),
}

SETTINGS = sorted({known.budget.setting for known in CLASSES.values()})  # each a field of RunSpec and of FailureConfig


def budget_of(spec: RunSpec, kind: FailureKind) -> tuple[Budget, int]:
    """The budget of a failure of that kind, and its limit; -1: no limit."""
    budget = CLASSES[kind].budget
    limit: int | None = getattr(spec, budget.setting)
    if limit is None:
        budget, limit = _FAILURES, spec.max_failures
    return budget, limit


def action_taken(state: Durable) -> str:
    """The reaction to the state's failure, in words."""
    budget, limit = budget_of(state.spec, state.failure.kind if state.failure else FailureKind.CRASH)
    name, spent = budget.setting, state.spent.get(budget.counter, 0)
    of = "" if limit < 0 else f" of {limit}"
    if state.verdict is None and state.failure is not None:
        return f"retry {spent}{of}: rank {state.failure.rank} alone is replaced"
    if state.verdict is Verdict.RETRY:
        return f"retry {spent}{of}"
    if limit < 0 or spent <= limit:
        return f"no retry: the same error came again (FailureConfig(max_same_errors={state.spec.max_same_errors}))"
    if limit == 0:
        return f"no retry: FailureConfig({name}=0)"
    return f"no retry left: FailureConfig({name}={limit})"


def page_table() -> str:
    """The table of docs/failure-classes.md."""
    rows = ["| class | evidence | counts in | then |", "|---|---|---|---|"]
    for kind, known in CLASSES.items():
        counts_in = known.counts_in or f"`{known.budget.setting}`"
        rows.append(f"| `{kind.value}` | {known.evidence} | {counts_in} | {known.then} |")
    return "\n".join(rows) + "\n"
