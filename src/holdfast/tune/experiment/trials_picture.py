"""The data of an experiment's display, and its texts."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.metric_names import flat_items, lookup, number
from holdfast.printable import duration, printable
from holdfast.tune.experiment.trial_tally import iteration
from holdfast.tune.progress_reporter import ENDED, STATUSES, TrialRow, error_table, trial_table
from holdfast.tune.result_metrics import AUTO_KEYS, TRAINING_ITERATION
from holdfast.ui.display_picture import Picture, headline, rate_text, value_text

WORDS = {"RUNNING": "running", "PAUSED": "paused", "PENDING": "waiting", "ERROR": "failed", "TERMINATED": "done"}
FAILED = " failed: "
_SHOWN_METRICS = 6  # besides the iteration and the metric that counts


@dataclass
class TrialsPicture(Picture):
    """The experiment as it is now. ``reports`` are the results of this driver's time; ``started`` is its own, too."""

    counts: Mapping[str, int] = field(default_factory=dict)  # by status
    total: float | None = None  # how many trials there will be, as far as that is known
    metric: str | None = None
    best: TrialRow | None = None
    rows: tuple[TrialRow, ...] = ()  # some of the running trials
    spent_s: float = 0.0  # by earlier drivers
    budget_s: float | None = None
    closing: str = ""  # the text to read at the end

    @property
    def trials(self) -> int:
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        return sum(self.counts.get(status, 0) for status in ENDED)


def trials_text(picture: TrialsPicture) -> str:
    total = picture.total
    of_total = f" of {total:,.0f}" if total is not None and math.isfinite(total) and total >= picture.trials else ""
    parts = ", ".join(f"{count:,} {WORDS[s]}" for s in STATUSES if (count := picture.counts.get(s, 0)))
    return f"{picture.trials:,}{of_total}{f': {parts}' if parts else ''}"


def speed_text(rate: float, what: str = "") -> str:
    """ "2.5/s", or "2.5 trials/s"."""
    text = rate_text(rate) if rate >= 1 else f"{rate * 60:.3g}/min" if rate * 60 >= 1 else f"{rate * 3600:.3g}/h"
    number, _, per = text.partition("/")
    return f"{number}{what and f' {what}'}/{per}"


def best_text(picture: TrialsPicture) -> str:
    what, name, chosen = best_parts(picture)
    return f"{what} by {name}{': ' if chosen else ''}{', '.join(chosen)}" if what else ""


def best_parts(picture: TrialsPicture) -> tuple[str, str, list[str]]:
    """The best result so far, the trial's name and its parameters; empty if there is none."""
    row = picture.best
    if row is None or picture.metric is None:
        return "", "", []
    found = iteration(row)
    when = f" at iteration {found:,}" if found is not None else ""
    chosen = [f"{printable(str(name))}={cell(value)}" for name, value in flat_items(row.parameters)]
    value = cell(lookup(row.metrics, picture.metric))
    return f"{printable(picture.metric)}={value}{when}", printable(row.name), chosen


def elapsed_text(picture: TrialsPicture, now: float) -> str:
    """With the time of earlier drivers, which a budget counts too."""
    spent = duration(picture.spent_s + max(0.0, now - picture.started))
    return spent if picture.budget_s is None else f"{spent} of {duration(picture.budget_s)}"


def cell(value: object) -> str:
    as_number = None if isinstance(value, (bool, int, str)) else number(value)
    return value_text(value if as_number is None else as_number)


def metric_columns(rows: list[TrialRow] | tuple[TrialRow, ...], metric: str | None) -> dict[str, str]:
    """The iteration, the metric that counts, and some other numbers, in the order in which they are reported."""
    names = [TRAINING_ITERATION, *([metric] if metric is not None else [])]
    for row in rows:
        for name, value in flat_items(row.metrics):
            if name not in names and name.partition("/")[0] not in AUTO_KEYS and number(value) is not None:
                names.append(name)
    return {name: "iter" if name == TRAINING_ITERATION else name for name in names[: 2 + _SHOWN_METRICS]}


def closing_text(picture: TrialsPicture, kept: list[TrialRow], failed: list[TrialRow], width: int) -> str:
    """For the end of an experiment: some trials, the best first where there is a best, and why others failed."""
    parts = []
    if kept:
        named = [row._replace(status=WORDS.get(row.status, row.status)) for row in kept]
        columns = metric_columns(kept, picture.metric)
        parts.append(trial_table(named, metric_columns=columns, width=width, metric=picture.metric, keep_first=True))
    if kept and len(kept) + len(failed) < picture.trials:
        which = "best" if picture.best is not None else "last"
        parts.append(f"These are the {len(kept)} {which} of {picture.trials:,} trials. To see all of them:")
        parts.append(f"  holdfast show {shlex.quote(printable(picture.path))}")
    if failed:
        parts.append(error_table(failed, width=width))
        more = picture.counts.get("ERROR", 0) - len(failed)
        if more > 0:
            parts.append(f"{more:,} more failed")
    return "\n".join(parts)


def failure_text(row: TrialRow) -> str:
    return f"{printable(row.name)}{FAILED}{headline(row.error or 'the reason is not known')}"
