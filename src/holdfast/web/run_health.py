"""The health of a run at a glance: one title, one sentence, and what a person should look at."""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast.pictures.ledger_bar import spelled
from holdfast.runs.attempt_history import KILLED, RUNNING, AttemptHistory
from holdfast.runs.ledger import Ledger
from holdfast.runs.reading import Reading
from holdfast.ui.display_picture import headline

GOOD, BUSY, BAD, OVER = "good", "busy", "bad", "over"  # each has its own sign and colour
_SILENT = 20  # times the usual duration of a report
_SILENT_S = 60.0
_LITTLE_S = 0.05  # less is not worth a sentence
_LOST = ("repeated", "stalled", "down")
_RESTARTING = ("recovering", "waiting", "capacity")


@dataclass(frozen=True)
class RunHealth:
    tone: str
    title: str
    text: str


def lost_s(ledger: Ledger) -> float:
    """The time lost to failures and to missing storage, nodes or drivers, up to the next report after each."""
    restarting, until = 0.0, 0.0
    for failure in ledger.failures:  # overlapping ones count once
        ended = failure.time + (failure.recovered_s or 0.0)
        restarting += max(0.0, ended - max(until, failure.time))
        until = max(until, ended)
    restarting = max(restarting, sum(ledger.parts[name] for name in _RESTARTING))
    return min(ledger.wall_clock_s, restarting + sum(ledger.parts[name] for name in _LOST))


def health_of(found: Reading, history: AttemptHistory, ledger: Ledger, trouble: list[str]) -> RunHealth:
    told = _told_failures(history, ledger, found.state != "running")
    if found.state == "running":
        return _running(found, history, trouble, told)
    newest = found.manifests[-1].id if found.manifests else None
    resume = f"Rerun the same command to resume from {newest}." if newest else "No checkpoint was saved."
    if found.state == "finished":
        took = f" in {spelled(ledger.wall_clock_s)}" if ledger.wall_clock_s else ""
        if found.past.is_damaged:
            return RunHealth(BAD, f"Finished{took}, but files are damaged", told)
        return RunHealth(OVER, f"Finished{took}", told)
    if found.state == "failed":
        reason = headline(found.past.ended.reason) if found.past.ended is not None else ""
        return RunHealth(BAD, "Failed", f"{_sentence(reason)} {_fix(newest)}".strip())
    if found.state == "stopped":
        return RunHealth(OVER, "Stopped", f"{resume} {told}".strip())
    if found.state == "interrupted":
        return RunHealth(BAD, "Interrupted: no driver is running", f"{resume} {told}".strip())
    return RunHealth(OVER, found.state.capitalize(), told)


def _running(found: Reading, history: AttemptHistory, trouble: list[str], told: str) -> RunHealth:
    if trouble:
        last = f"Last failure: {headline(history.failures[-1].text)}" if history.failures else ""
        return RunHealth(BAD, "Running, needs attention", f"{told} {last}".strip())
    attempt = history.attempts[-1] if history.attempts else None
    if attempt is None or attempt.outcome != RUNNING:
        return RunHealth(BUSY, "Recovering" if history.failures else "Starting", told)
    if found.last_report[0] <= attempt.base:
        title = "Recovering" if attempt.number > 1 else "Starting"
        return RunHealth(BUSY, f"{title}: waiting for the first report of attempt {attempt.number}", told)
    return RunHealth(GOOD, "Healthy", told)


def _told_failures(history: AttemptHistory, ledger: Ledger, is_over: bool) -> str:
    count, cost = len(history.failures), lost_s(ledger)
    killed = sum(span.outcome == KILLED for span in history.drivers)
    known = [f"{count:,} failure{'' if count == 1 else 's'}"] if count else []
    known += [f"the driver was killed {'once' if killed == 1 else f'{killed:,} times'}"] if killed else []
    if not known:
        return "No failures." if is_over else "No failures so far."
    told = _sentence(", and ".join(known))
    if not ledger.wall_clock_s or cost < _LITTLE_S:
        return told
    share = cost / ledger.wall_clock_s * 100
    return f"{told} Recovery and repeated work took {spelled(cost)}, {_percent(share)} of the time."


def _percent(share: float) -> str:
    return f"{share:.0f} %" if share >= 1 else "less than 1 %"


def _fix(newest: str | None) -> str:
    then = f"resume from {newest}" if newest else "start again"
    return f"Fix the error, then rerun the same command to {then}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def trouble_of(found: Reading, history: AttemptHistory, now: float | None = None) -> list[str]:
    """What a person should look at. A run without a driver is not in trouble just because of that."""
    trouble = []
    if found.past.is_damaged:
        trouble.append("The journal is damaged")
    if found.state == "failed" and found.past.ended is not None:
        trouble.append(headline(found.past.ended.reason) or "Failed")
    if found.driver is None:
        return trouble
    stuck = history.restarts_without_progress
    if stuck >= 2:
        trouble.append(f"{stuck} restarts without progress")
    if history.is_stalled:
        trouble.append(
            f"Training waits for storage{f', which is behind by {history.behind}' if history.behind else ''}"
        )
    elif history.behind is not None:
        trouble.append(f"Storage is behind by {history.behind}")
    if history.attempts and found.records and found.records[-1].kind == "StacksTaken":
        rank = found.records[-1].body.get("rank", -1)
        trouble.append(f"Rank {rank} seems to hang" if isinstance(rank, int) and rank >= 0 else "A rank seems to hang")
    elif silent := _silence(found, history, time.time() if now is None else now):
        trouble.append(silent)
    if history.waits and history.waits[-1][1] >= history.ended:
        trouble.append("Waiting for nodes")
    return trouble


def _silence(found: Reading, history: AttemptHistory, now: float) -> str:
    """Without a hang timeout, nothing else notices a hang: compare the wait for a report with its usual duration."""
    reports, last = found.last_report
    attempt = history.attempts[-1] if history.attempts else None
    if attempt is None or last is None or attempt.outcome != RUNNING or reports - attempt.base < 2:
        return ""
    usual, waits = (last["time"] - attempt.began) / (reports - attempt.base), now - last["time"]
    if waits < max(_SILENT_S, _SILENT * usual):
        return ""
    return f"No report for {spelled(waits)}: a rank may hang (a report usually takes {spelled(usual)})"
