"""What to fix in the script, concluded from the results. A problem fails the drill, advice does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.drill.content import shown
from holdfast.drill.faults import Fault
from holdfast.drill.outcome import RunOutcome, SeenAttempt
from holdfast.drill.run_comparison import Differences, Point, counterparts, restored
from holdfast.drill.running import Take

PROBLEM, ADVICE = "problem", "advice"
_SHOWN = 3


class Finding(NamedTuple):
    code: str
    severity: str
    text: str  # the problem
    remedy: str  # what to change


class Seen(NamedTuple):
    """Everything that is known about the script under one fault."""

    fault: Fault
    take: Take
    struck: dict[str, Any] | None
    expected: list[RunOutcome]
    found: list[RunOutcome]
    differences: Differences
    limit_s: float
    last_words: str


def judge(seen: Seen) -> list[Finding]:
    if seen.struck is None:
        return [_did_not_strike(seen)]
    findings = list(_of_the_end(seen))
    if any(finding.severity == PROBLEM for finding in findings):
        return findings
    return [*findings, *_of_the_restore(seen), *_advice(seen)]


def _did_not_strike(seen: Seen) -> Finding:
    steps = max((len(run.rows) for run in seen.found), default=0)
    how = "" if seen.take.is_good else f", and the script failed: {seen.last_words}"
    return Finding(
        "did-not-strike",
        PROBLEM,
        f"the fault did not strike: the run made {steps} reports{how}",
        "choose a rank and step that the run reaches, as in --fault worker-kill@rank=0,step=2",
    )


def _of_the_end(seen: Seen) -> Iterator[Finding]:
    if seen.take.code is None:
        yield Finding(
            "did-not-end",
            PROBLEM,
            f"the run did not finish within {seen.limit_s:.0f} s: {seen.last_words}",
            "find out what it waits for (--keep DIR keeps its logs), or allow more time with --timeout",
        )
    elif not seen.take.is_good or not seen.found or not seen.found[-1].finished:
        reason = seen.found[-1].reason if seen.found else seen.last_words
        yield Finding(
            "did-not-recover",
            PROBLEM,
            f"the run did not finish, though the script was run {seen.take.times} times: {reason or seen.last_words}",
            "fix what the train function raises when it resumes, or set FailureConfig(max_failures=...)",
        )
    elif len(seen.found) > len(seen.expected):
        yield Finding(
            "not-found-again",
            PROBLEM,
            "rerunning the script started a new run from the beginning instead of resuming",
            "give the run a fixed name, RunConfig(name=...), and leave fresh=True out",
        )
    if seen.take.left:
        yield Finding("left-behind", PROBLEM, f"{seen.take.left} processes had to be killed after the run", "")


def _of_the_restore(seen: Seen) -> Iterator[Finding]:
    differences = seen.differences
    pairs = list(zip(seen.expected, counterparts(seen.expected, seen.found), strict=True))
    ignored = [attempt for _, run in pairs for attempt in restored(run) if not _asked(run, attempt)]
    unread = [attempt for _, run in pairs for attempt in restored(run) if not _opened(run, attempt)]
    if ignored or (unread and not differences.is_none):
        yield _never_read((ignored or unread)[0], asked=not ignored)
        return
    if differences.is_none or not differences.is_comparable:
        return
    named = [finding for run, _ in pairs for finding in _named(run, differences)]
    yield from named or [_unexplained(differences)]


def _asked(run: RunOutcome, attempt: SeenAttempt) -> bool:
    return _is_noted(run, attempt, "asked")


def _opened(run: RunOutcome, attempt: SeenAttempt) -> bool:
    return _is_noted(run, attempt, "opened")


def _is_noted(run: RunOutcome, attempt: SeenAttempt, what: str) -> bool:
    """Whether any rank did so. True if no report of the attempt is in the history, because then nothing is known."""
    notes = [note for by_step in run.records.values() for note in by_step.values()]
    notes = [note for note in notes if note["attempt"] == attempt.attempt_number]
    return not notes or any(note[what] for note in notes)


def _never_read(attempt: SeenAttempt, asked: bool) -> Finding:
    how = "was requested, but none of its files was opened" if asked else "was never read"
    return Finding(
        "checkpoint-ignored",
        PROBLEM,
        f"a checkpoint {how}: after the restart, training began again from the beginning, "
        f"and {attempt.base} steps of work were lost",
        "call train.get_checkpoint() at the start of the train function, and load the state from it",
    )


def _named(expected: RunOutcome, differences: Differences) -> Iterator[Finding]:
    if differences.schedules or differences.rates:
        yield _of_rates(expected, differences)
    if differences.batches:
        yield _of_data(expected, differences.batches[0])
    if not (differences.schedules or differences.rates or differences.batches) and differences.random:
        yield _of_random(differences.random)


def _of_rates(expected: RunOutcome, differences: Differences) -> Finding:
    point = (differences.schedules or differences.rates)[0]
    again = "starts again from zero" if _as_at_the_start(expected, point) else "changed"
    rate = differences.rates[0] if differences.rates else None
    values = f": at step {rate.step} it is {_rate(rate.found)}, not {_rate(rate.expected)}" if rate else ""
    return Finding(
        "schedule-lost",
        PROBLEM,
        f"the learning-rate schedule {again} after a restore{values}",
        "save scheduler.state_dict() in the checkpoint, and load it with scheduler.load_state_dict()",
    )


def _rate(pair: Any) -> str:
    return ", ".join(f"{value:.4g}" for value in pair[0]) if pair else "none"


def _of_data(expected: RunOutcome, point: Point) -> Finding:
    how = "the data starts again from the beginning" if _as_at_the_start(expected, point) else "the data order changed"
    return Finding(
        "data-order",
        PROBLEM,
        f"{how} after a restore: from step {point.step} on, rank {point.rank} gets different batches",
        "save loader.state_dict() of a prepare_data_loader() loader in the checkpoint and load it, "
        "or call loader.set_epoch(epoch) with the restored epoch",
    )


def _as_at_the_start(run: RunOutcome, point: Point) -> bool:
    """Whether the value at a step is the one that the undisturbed run had at its first step."""
    first = run.records.get(point.rank, {}).get(1)
    return first is not None and bool(first[point.name] == point.found)


def _of_random(points: list[Point]) -> Finding:
    sources = sorted({point.name for point in points})
    return Finding(
        "random-state",
        PROBLEM,
        f"the random state of {' and '.join(sources)} differs after a restore, from step {points[0].step} on",
        "save holdfast.train.torch.rng_state() on each rank, in a file with the rank in its name, and restore it with "
        "set_rng_state()",
    )


def _unexplained(differences: Differences) -> Finding:
    names = [f"{difference.where} ({difference.what})" for difference in differences.weights[:_SHOWN]]
    metrics = [
        f"{point.name} at step {point.step} ({shown(point.expected)} became {shown(point.found)})"
        for point in differences.metrics[:_SHOWN]
    ]
    more = len(differences.weights) - len(names)
    what = ", ".join([*metrics, *names, *([f"{more} more"] if more > 0 else [])])
    return Finding(
        "differs",
        PROBLEM,
        f"after a restore the results differ: {what or differences}",
        "save and restore everything that the next step depends on: weights, optimizer, schedule, loader, "
        "random states, step",
    )


def _advice(seen: Seen) -> Iterator[Finding]:
    failure = seen.found[-1].identity.get("failure") or {}
    if not seen.differences.is_comparable:
        yield Finding(
            "not-compared",
            ADVICE,
            "the number of workers changed, so metrics, weights and data were not compared",
            "rehearse it with a fixed number of workers too: ScalingConfig(num_workers=2)",
        )
    if seen.take.times > 1 and seen.fault.kind.where == "worker" and failure.get("max_failures") == 0:
        yield Finding(
            "max-failures",
            ADVICE,
            "one failed worker ended the run, which resumed only when the script was run again",
            "set FailureConfig(max_failures=...) to let the run restart by itself",
        )
    if seen.fault.name == "gil-hold" and failure.get("hang_timeout_s") is None:
        yield Finding(
            "hang-timeout",
            ADVICE,
            "no hang timeout is set, so a stuck worker would never be restarted",
            'set FailureConfig(hang_timeout_s="auto")',
        )
    if _restored_nothing(seen):
        yield Finding(
            "nothing-restored",
            ADVICE,
            "the fault struck before a checkpoint was saved, so the run started over, and no restore was rehearsed",
            f"choose a later step: --fault {seen.fault.name}@step={(seen.struck or {}).get('step', 1) + 5}",
        )
    if seen.fault.kind.where == "nodes" and all(len(run.attempts) <= 1 for run in seen.found):
        yield Finding(
            "ended-first",
            ADVICE,
            "the run finished before it left the node, so no restart was rehearsed",
            f"make the run longer, or choose an earlier step: --fault {seen.fault.name}@step=2",
        )
    for run in seen.found:
        fell = [attempt for attempt in run.attempts[1:] if attempt.resumed is None and attempt.base == 0]
        if fell and run.quarantined:
            yield Finding(
                "from-the-beginning",
                ADVICE,
                "there was no intact checkpoint to fall back to, so the run started over",
                "keep more than one: CheckpointConfig(num_to_keep=2)",
            )
            return


def _restored_nothing(seen: Seen) -> bool:
    """Whether a fault did not test a restore, although there was something to restore."""
    attempts = [attempt for run in seen.found for attempt in run.attempts[1:]]
    saves = any(run.checkpoint_steps for run in seen.expected)
    set_aside = any(run.quarantined for run in seen.found)
    return saves and bool(attempts) and not set_aside and all(attempt.resumed is None for attempt in attempts)
