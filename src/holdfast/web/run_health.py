"""How a run is, at a glance: one title, one sentence, and what a person should look at."""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast.pictures.ledger_bar import spelled
from holdfast.runs.attempt_history import RUNNING, AttemptHistory
from holdfast.runs.ledger import Ledger
from holdfast.runs.reading import Reading
from holdfast.ui.display_picture import headline

GOOD, BUSY, BAD, OVER = "good", "busy", "bad", "over"  # each has a sign and a colour of its own
_SILENT = 20  # times as long as a report took until now
_SILENT_S = 60.0
_LOST = ("redone", "recovering", "waiting", "capacity", "down", "stalled")


@dataclass(frozen=True)
class RunHealth:
    tone: str
    title: str
    text: str


def lost_s(ledger: Ledger | None) -> float | None:
    """What failures and missing storage, nodes or drivers cost, beside the start of attempts."""
    return None if ledger is None else sum(ledger.parts.get(name, 0.0) for name in _LOST)


def health_of(found: Reading, history: AttemptHistory, ledger: Ledger | None, trouble: list[str]) -> RunHealth:
    told = _told_failures(history, ledger)
    if found.state == "running":
        return _running(found, history, trouble, told)
    newest = found.manifests[-1].id if found.manifests else None
    resume = f"Rerun the same command to resume from {newest}." if newest else "No checkpoint was saved."
    if found.state == "finished":
        took = f" in {spelled(ledger.wall_clock_s)}" if ledger is not None and ledger.wall_clock_s else ""
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
        return RunHealth(BAD, "Running, needs attention", told)
    attempt = history.attempts[-1] if history.attempts else None
    if attempt is None or attempt.outcome != RUNNING:
        return RunHealth(BUSY, "Recovering" if history.failures else "Starting", told)
    if found.last_report[0] <= attempt.base:
        title = "Recovering" if attempt.number > 1 else "Starting"
        return RunHealth(BUSY, f"{title}: waiting for the first report of attempt {attempt.number}", told)
    return RunHealth(GOOD, "Healthy", told)


def _told_failures(history: AttemptHistory, ledger: Ledger | None) -> str:
    count, cost = len(history.failures), lost_s(ledger)
    if not count:
        return "No failure so far."
    known = f"{count:,} failure{'' if count == 1 else 's'}"
    if ledger is None or cost is None or not ledger.wall_clock_s:
        return f"{known}."
    share = f"{cost / ledger.wall_clock_s * 100:.0f} % of the time"
    return f"{known}. Recovery and repeated work took {spelled(cost)}, {share}."


def _fix(newest: str | None) -> str:
    then = f"resume from {newest}" if newest else "start again"
    return f"Fix the error, then rerun the same command to {then}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def trouble_of(found: Reading, history: AttemptHistory, now: float | None = None) -> list[str]:
    """What a person should look at. A run that nobody drives is not in trouble for that alone."""
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
    """A run without a hang timeout may hang unseen: compare the wait for a report with how long one took until now."""
    reports, last = found.last_report
    attempt = history.attempts[-1] if history.attempts else None
    if attempt is None or last is None or attempt.outcome != RUNNING or reports - attempt.base < 2:
        return ""
    usual, waits = (last["time"] - attempt.began) / (reports - attempt.base), now - last["time"]
    if waits < max(_SILENT_S, _SILENT * usual):
        return ""
    return f"No report for {spelled(waits)}: a rank may hang (a report usually takes {spelled(usual)})"
