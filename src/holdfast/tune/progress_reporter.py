"""Progress of an experiment as text, for scripts that want a table of trials from time to time.

``trial_table`` is a pure function from rows to text; the reporters only choose columns, keep time and print.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from holdfast.core.metric_names import flat_items, lookup, metric_number, number
from holdfast.printable import duration, printable
from holdfast.trackers.trial_callback import Trial
from holdfast.train.checks import check_int, check_number
from holdfast.tune.result_grid import check_mode
from holdfast.tune.result_metrics import AUTO_KEYS, TRAINING_ITERATION
from holdfast.ui.display_picture import headline, value_text
from holdfast.ui.display_streams import terminal_size
from holdfast.ui.fitted_table import Column, lines, shortened

Columns = Sequence[str] | Mapping[str, str]

STATUSES = ("RUNNING", "PAUSED", "PENDING", "ERROR", "TERMINATED")
ENDED = ("ERROR", "TERMINATED")
USUAL_METRICS = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    TRAINING_ITERATION: "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
FINAL_ROWS = 200  # more rows than a person reads on a screen
UNBOUNDED = 10_000
_ITERATION, _STATUS, _VARIES, _OTHER, _CONSTANT = range(1, 6)  # which columns are shown first
_ABSENT = object()


class TrialRow(NamedTuple):
    """A trial as the tables show it."""

    name: str
    status: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Any]
    error: str | None = None


def row_of(trial: Trial) -> TrialRow:
    return TrialRow(str(trial), trial.status, trial.config, trial.last_result, trial.error)


def trial_table(
    rows: Sequence[TrialRow],
    *,
    metric_columns: Mapping[str, str],
    parameter_columns: Mapping[str, str] | None = None,
    max_rows: int | None = None,
    max_column_length: int = 20,
    width: int = UNBOUNDED,
    keep_first: bool = False,
    metric: str | None = None,
) -> str:
    """The rows as a table, at most ``max_rows`` of them and ``width`` characters wide.

    Columns are names and headings, all parameters by default, and one that is empty in all rows is left out. The one of
    ``metric``, by which trials are judged, is always shown. If there are too many rows, each status keeps a fair share:
    the last of those that have ended, unless ``keep_first``, and the first of the others. With ``keep_first`` and no
    ``max_rows``, the rows stay in their order.
    """
    shown = _fair_share(rows, max_rows, keep_first)
    columns = [
        Column("trial", [printable(row.name) for row in shown], 0, is_number=False, longest=UNBOUNDED),
        Column("status", [row.status for row in shown], _STATUS, is_number=False),
        *value_columns(shown, metric_columns, parameter_columns, metric, max_column_length),
    ]
    text = "\n".join(lines(columns, width))
    left = Counter(row.status for row in rows)
    left.subtract(Counter(row.status for row in shown))
    hidden = ", ".join(f"{left[status]} {status}" for status in _in_order(left) if left[status])
    return f"{text}\n{len(rows) - len(shown)} more not shown: {hidden}" if hidden else text


def value_columns(
    rows: Sequence[TrialRow],
    metrics: Mapping[str, str],
    parameters: Mapping[str, str] | None = None,
    metric: str | None = None,
    longest: int = 20,
) -> list[Column]:
    """Columns of parameters and metrics. If there is little space, the important ones come first: ``metric``, which is
    shown even before it has a value, the iteration, parameters that differ between the rows, then the rest."""
    if parameters is None:
        parameters = {str(name): str(name) for row in rows for name, _ in flat_items(row.parameters)}
    known = {heading for name, heading in metrics.items()}
    found = []
    for name, heading in _filled(parameters, [row.parameters for row in rows]).items():
        cells = [_cell(lookup(row.parameters, name, _ABSENT)) for row in rows]
        rank = _VARIES if len(set(cells)) > 1 else _CONSTANT
        found.append(
            Column(f"config/{heading}" if heading in known else printable(heading), cells, rank, True, longest)
        )
    filled = _filled(metrics, [row.metrics for row in rows])
    for name, heading in metrics.items():
        if name not in filled and name != metric:
            continue
        cells = [_cell(lookup(row.metrics, name, _ABSENT)) for row in rows]
        rank = 0 if name == metric else _ITERATION if name == TRAINING_ITERATION else _OTHER
        found.append(Column(printable(heading), cells, rank, True, longest))
    return found


def error_table(rows: Sequence[TrialRow], *, max_rows: int | None = None, width: int = UNBOUNDED) -> str:
    """The failed trials with their errors; empty if none has failed. Trials that were retried have a star."""
    failed = [row for row in rows if row.error]
    if not failed:
        return ""
    told = [
        (printable(row.name) + ("" if row.status == "ERROR" else " *"), headline(row.error or ""))
        for row in (failed if max_rows is None else failed[:max_rows])
    ]
    text = "\n".join(
        f"{name}\n  {error}" if width < 100 else f"{name}  {error}" for name, error in _aligned(told, width)
    )
    if len(told) < len(failed):
        text += f"\n{len(failed) - len(told)} more not shown"
    again = "\n* was retried" if any(row.status != "ERROR" for row in failed[: len(told)]) else ""
    return f"failed trials:\n{text}{again}"


def _aligned(told: Sequence[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Names are shortened in the middle, errors at their end; on narrow screens each has a separate line."""
    if width < 100:
        return [(shortened(name, width), headline(error, max(10, width - 2))) for name, error in told]
    widest = min(max(len(name) for name, _ in told), width // 2)
    return [(f"{shortened(name, widest):{widest}}", headline(error, width - widest - 2)) for name, error in told]


def summary(rows: Sequence[TrialRow], total: float | None, elapsed_s: float) -> str:
    """The number of trials by status, and how long the experiment has been running."""
    counts = Counter(row.status for row in rows)
    parts = ", ".join(f"{counts[status]} {status}" for status in _in_order(counts))
    of_total = f" of {total:g}" if total is not None and total >= len(rows) else ""
    return f"trials: {len(rows)}{of_total}{f' ({parts})' if parts else ''}, running for {duration(elapsed_s)}"


def best_row(rows: Iterable[TrialRow], metric: str, mode: str) -> TrialRow | None:
    """The row with the best last value of the metric, ignoring NaN and infinities; of equal values, the first."""
    scored = [(value, row) for row in rows if (value := metric_number(row.metrics, metric)) is not None]
    best = max if mode == "max" else min
    return best(scored, key=lambda pair: pair[0])[1] if scored else None


class ProgressReporter:
    """The base class of progress reporters. Pass an instance as ``RunConfig(progress_reporter=)``."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called first, with the start time of the experiment, the number of trials, and the metric."""

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return whether to call ``report`` now. ``done`` says that this is the last time."""
        raise NotImplementedError

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show the progress. ``sys_info`` are additional lines about the machine."""
        raise NotImplementedError


class CLIReporter(ProgressReporter):
    """Prints a table of trials every ``max_report_frequency`` seconds, and a last one at the end.

    ``metric_columns`` and ``parameter_columns`` are lists of names, or dicts of names and headings. By default they are
    all parameters, the usual metrics, and the first ``infer_limit`` others that trials report.
    ``print_intermediate_tables=False`` prints only the last table. ``sort_by_metric`` puts the best trials of each
    status first. ``metric`` and ``mode`` are by default those of ``TuneConfig``.
    """

    def __init__(
        self,
        *,
        metric_columns: Columns | None = None,
        parameter_columns: Columns | None = None,
        total_samples: float | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
        clock: Callable[[], float] = time.time,
        out: TextIO | None = None,
    ) -> None:
        check_int("CLIReporter(max_progress_rows", max_progress_rows, least=0)
        check_int("CLIReporter(max_error_rows", max_error_rows, least=0)
        check_int("CLIReporter(max_column_length", max_column_length, least=4)
        check_number("CLIReporter(max_report_frequency", max_report_frequency, least=0)
        if mode is not None:
            check_mode("CLIReporter(mode", mode)
        self._metric_columns = None if metric_columns is None else _headed(metric_columns)
        self._parameter_columns = _headed(parameter_columns or {})
        self._inferred: dict[str, str] = {}
        self._infer_limit = infer_limit
        self._max_rows, self._max_error_rows = max_progress_rows, max_error_rows
        self._max_column_length = max_column_length
        self._every_s = max_report_frequency
        self._tables_on_the_way = print_intermediate_tables is not False
        self._total, self._metric, self._mode = total_samples, metric, mode
        self._sort_by_metric = sort_by_metric
        self._clock, self._out = clock, out
        self._started = clock()
        self._last_report = float("-inf")

    def setup(
        self,
        start_time: float | None = None,
        total_samples: float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name, mine, given in (("metric", self._metric, metric), ("mode", self._mode, mode)):
            if mine and given and mine != given:
                raise ValueError(
                    f"CLIReporter({name}={mine!r}): TuneConfig says {given!r}; leave it out in one of them"
                )
        self._started = self._clock() if start_time is None else start_time
        self._total = total_samples if total_samples is not None else self._total
        self._metric, self._mode = self._metric or metric, self._mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Also show this metric, under ``representation`` if it is given."""
        self._metric_columns = _with_column(self._metric_columns or dict(USUAL_METRICS), metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Also show this parameter, under ``representation`` if it is given."""
        self._parameter_columns = _with_column(self._parameter_columns, parameter, representation)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        now = self._clock()
        if not done and now - self._last_report < self._every_s:
            return False
        self._last_report = now
        return True

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        out = self._out or sys.stdout
        width = terminal_size(out)[0] if out.isatty() else UNBOUNDED
        print(self.text([row_of(trial) for trial in trials], done, *sys_info, width=width), file=out, flush=True)

    def text(self, rows: Sequence[TrialRow], done: bool, *sys_info: str, width: int = UNBOUNDED) -> str:
        """Return the text that ``report`` prints."""
        parts = [summary(rows, self._total, self._clock() - self._started), *sys_info]
        best = best_row(rows, self._metric, self._mode) if self._metric and self._mode else None
        if best is not None:
            names = self._parameter_columns or dict(flat_items(best.parameters))
            chosen = ", ".join(f"{printable(str(name))}={_cell(lookup(best.parameters, name))}" for name in names)
            value = _cell(lookup(best.metrics, self._metric or ""))
            by_chosen = f" by {chosen}" if chosen else ""
            parts.append(
                f"current best: {printable(best.name)} with {printable(self._metric or '')}={value}{by_chosen}"
            )
        if rows and (done or self._tables_on_the_way):
            table = trial_table(
                self._ordered(rows),
                metric_columns=self._metric_columns if self._metric_columns is not None else self._infer(rows),
                parameter_columns=self._parameter_columns or None,
                max_rows=FINAL_ROWS if done else self._max_rows,
                max_column_length=self._max_column_length,
                width=width,
                keep_first=self._sort_by_metric,
                metric=self._metric,
            )
            parts.append(table)
        parts.append(error_table(rows, max_rows=FINAL_ROWS if done else self._max_error_rows, width=width))
        return "\n".join(part for part in parts if part)

    def _infer(self, rows: Sequence[TrialRow]) -> dict[str, str]:
        """The usual metrics and the first others; once found they stay, so that tables look alike."""
        for row in rows:
            for name, value in row.metrics.items():
                if len(self._inferred) >= self._infer_limit:
                    return {**USUAL_METRICS, **self._inferred}
                if name not in USUAL_METRICS and name not in AUTO_KEYS and number(value) is not None:
                    self._inferred[name] = name
        return {**USUAL_METRICS, **self._inferred}

    def _ordered(self, rows: Sequence[TrialRow]) -> Sequence[TrialRow]:
        """With ``sort_by_metric``, the best first, and those without a value last."""
        if not self._sort_by_metric or not self._metric or not self._mode:
            return rows
        sign, metric = (-1.0 if self._mode == "max" else 1.0), self._metric

        def rank(row: TrialRow) -> tuple[bool, float]:
            value = metric_number(row.metrics, metric)
            return (True, 0.0) if value is None else (False, sign * value)

        return sorted(rows, key=rank)


class JupyterNotebookReporter(CLIReporter):
    """Like ``CLIReporter``, for notebooks. With ``overwrite``, each table replaces the previous one."""

    def __init__(self, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._overwrite = overwrite

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        if self._overwrite:
            with contextlib.suppress(ImportError):
                from IPython.display import clear_output  # type: ignore[import-not-found]

                clear_output(wait=True)
        super().report(trials, done, *sys_info)


def _headed(columns: Columns) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def _with_column(columns: Mapping[str, str], name: str, heading: str | None) -> dict[str, str]:
    if name in columns:
        raise ValueError(f"Column {name!r} already exists")
    return {**columns, name: heading or name}


def _filled(columns: Mapping[str, str], sources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        name: heading
        for name, heading in columns.items()
        if any(lookup(source, name, _ABSENT) is not _ABSENT for source in sources)
    }


def _in_order(statuses: Iterable[str]) -> list[str]:
    known = [status for status in STATUSES if status in statuses]
    return [*known, *sorted(set(statuses) - set(STATUSES))]


def _fair_share(rows: Sequence[TrialRow], max_rows: int | None, keep_first: bool) -> list[TrialRow]:
    if keep_first and max_rows is None:
        return list(rows)
    by_status: dict[str, list[TrialRow]] = {}
    for row in rows:
        by_status.setdefault(row.status, []).append(row)
    room, kept = len(rows) if max_rows is None else max_rows, dict.fromkeys(by_status, 0)
    while room > 0 and any(kept[status] < len(found) for status, found in by_status.items()):
        for status in _in_order(by_status):
            if room > 0 and kept[status] < len(by_status[status]):
                kept[status] += 1
                room -= 1
    chosen = []
    for status in _in_order(by_status):
        found, count = by_status[status], kept[status]
        chosen += found[len(found) - count :] if status in ENDED and not keep_first else found[:count]
    return chosen


def _cell(value: Any) -> str:
    as_number = None if isinstance(value, (bool, int, str)) else number(value)
    return "" if value is _ABSENT else value_text(value if as_number is None else as_number)
