"""The outcome of an experiment: the results of its trials, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from holdfast.core.metric_names import flat_items, lookup, number
from holdfast.printable import encodable_row
from holdfast.store.location import Location

SCOPES = ("last", "avg", "last-5-avg", "last-10-avg", "all")
SHOWN = 20


class TrialResult(Protocol):
    """The part of ``holdfast.train.Result`` that is used."""

    @property
    def metrics(self) -> dict[str, Any] | None: ...

    @property
    def error(self) -> Exception | None: ...

    @property
    def path(self) -> str: ...

    @property
    def config(self) -> dict[str, Any] | None: ...

    @property
    def metrics_dataframe(self) -> Any: ...


class ResultGrid:
    """The outcome of ``Tuner.fit()``: a sequence with a ``Result`` for each trial.

    ``results`` may read an item only when it is requested; it may also be an ``ExperimentAnalysis``. ``statuses`` are
    the trials' statuses; without them a trial with an error counts as ERROR and any other as TERMINATED. ``reports``
    returns all reports of a result; by default they come from its data frame, in which a missing metric looks like NaN.
    """

    def __init__(
        self,
        results: Any,
        *,
        experiment_path: str = "",
        metric: str | None = None,
        mode: str | None = None,
        statuses: Sequence[str] | None = None,
        reports: Callable[[Any], Iterable[Mapping[str, Any]]] | None = None,
        filesystem: Any = None,
    ) -> None:
        if hasattr(results, "trials"):
            analysis = results
            results, statuses = [one.result for one in analysis.trials], [one.status for one in analysis.trials]
            experiment_path, reports = analysis.experiment_path, _rows_kept
            metric, mode = metric or analysis.default_metric, mode or analysis.default_mode
        assert statuses is None or len(statuses) == len(results)
        self._results: Sequence[TrialResult] = results
        self._experiment_path = experiment_path
        self._metric, self._mode = metric, mode
        self._statuses = statuses
        self._reports = reports or _rows_of_frame
        self._filesystem = filesystem

    def __getstate__(self) -> dict[str, Any]:
        """Pickles all results, which are otherwise read on request."""
        return {**self.__dict__, "_results": list(self._results), "_reports": _rows_kept}

    @property
    def experiment_path(self) -> str:
        return self._experiment_path

    @property
    def filesystem(self) -> Any:
        """The file system that you passed, or a pyarrow one; ``experiment_path`` is a path in it."""
        return self._filesystem.as_filesystem() if isinstance(self._filesystem, Location) else self._filesystem

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, i: int) -> Any:
        return self._results[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._results)

    @property
    def errors(self) -> list[Exception]:
        """The errors of the failed trials."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        return self._count("ERROR")

    @property
    def num_terminated(self) -> int:
        """How many trials have finished without an error."""
        return self._count("TERMINATED")

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Any:
        """Return the result with the highest ("max") or lowest ("min") ``metric``. By default both are those of
        ``TuneConfig``.

        ``scope`` says which value of a trial is compared: its "last" one, the average of all ("avg"), of the last 5 or
        10 ("last-5-avg", "last-10-avg"), or its best ("all"). Nested metrics are named with slashes. Trials whose value
        is NaN or infinite are never the best, unless ``filter_nan_and_inf`` is False.
        """
        if len(self) == 1:
            return self[0]
        metric, mode = metric or self._metric, mode or self._mode
        if not metric or not mode:
            missing = "mode" if metric else "metric"
            raise ValueError(f"get_best_result({missing}=None): pass it here or to TuneConfig")
        check_mode("get_best_result(mode", mode)
        if scope not in SCOPES:
            raise ValueError(f"get_best_result(scope={scope!r}): use one of {', '.join(SCOPES)}")
        scored = [(self._score(result, metric, mode, scope), result) for result in self._results]
        usable = [
            (_ranked(value, mode), result)
            for value, result in scored
            if value is not None and (math.isfinite(value) or not filter_nan_and_inf)
        ]
        if not usable:
            raise RuntimeError(self._no_best(metric, [value for value, _ in scored if value is not None]))
        return max(usable, key=lambda pair: pair[0])[1]  # of equals, the first

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> Any:
        """Return a pandas DataFrame with a row for each trial that has reported.

        A row holds the trial's metrics, its config as "config/...", and its path as "logdir". The metrics are those of
        the last report, or of the report with the best ``filter_metric``.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("get_dataframe needs pandas: run pip install 'holdfast[dataframe]'") from error
        if filter_mode is not None:
            check_mode("get_dataframe(filter_mode", filter_mode)
            if filter_metric is None:
                raise ValueError(f"get_dataframe(filter_mode={filter_mode!r}): pass filter_metric too")
        rows = []
        for result in self._results:
            metrics: Mapping[str, Any] | None = result.metrics
            if filter_metric and filter_mode:
                metrics = best_report(self._reports(result), filter_metric, filter_mode) or metrics
            if metrics:
                config = flat_items(result.config or {}, "config/")
                rows.append(encodable_row([*flat_items(metrics), *config, ("logdir", result.path)]))
        return pandas.DataFrame(rows)

    def _score(self, result: TrialResult, metric: str, mode: str, scope: str) -> float | None:
        if scope == "last":
            last = number(lookup(result.metrics or {}, metric))
            if last is not None:
                return last
        values = [number(lookup(report, metric)) for report in self._reports(result)]
        return score([value for value in values if value is not None], mode, scope)

    def _count(self, status: str) -> int:
        if self._statuses is not None:
            return sum(each == status for each in self._statuses)
        return sum((result.error is not None) == (status == "ERROR") for result in self._results)

    def _no_best(self, metric: str, values: list[float]) -> str:
        if values:
            return f"In every trial, {metric!r} is NaN or infinite. Pass filter_nan_and_inf=False to get one anyway"
        known = sorted({name for result in self._results for name, _ in flat_items(result.metrics or {})})
        return f"No trial has reported a number as {metric!r}. Reported metrics: {', '.join(known) or 'nothing'}"

    def _repr_html_(self) -> str:
        """The view in a notebook: the best trials first, if there is a best."""
        from holdfast.pictures.result_html import grid_html
        from holdfast.ui.display_picture import value_text

        metric, mode = self._metric or "", self._mode
        results = list(self)
        if metric and mode:
            values = {id(result): number(lookup(result.metrics or {}, metric)) for result in results}
            results.sort(key=lambda result: _ranked(_or_nan(values[id(result)]), mode), reverse=True)
        configs = [dict(flat_items(result.config or {})) for result in results[:SHOWN]]
        params = list(dict.fromkeys(name for config in configs for name in config))[:8]
        rows = [
            [
                result.path.rpartition("/")[2],
                "done" if result.error is None else "failed",
                value_text(lookup(result.metrics or {}, metric, "")),
                *(value_text(config.get(name, "")) for name in params),
            ]
            for result, config in zip(results, configs, strict=False)
        ]
        done, failed = self.num_terminated, self.num_errors
        summary = f"{len(self):,} trials: {done:,} done, {failed:,} failed"
        share = (done + failed) / len(self) if len(self) else 0.0
        curves = [
            (row[0], [number(lookup(report, metric)) for report in self._reports(result)])
            for row, result in zip(rows[:8], results, strict=False)
        ]
        header = ["trial", "state", metric, *params]
        return grid_html(self.experiment_path, summary, header, rows, share, curves if metric else ())

    def __repr__(self) -> str:
        shown = [repr(self[number]) for number in range(min(len(self), SHOWN))]
        if len(self) > SHOWN:
            shown.append(f"... and {len(self) - SHOWN} more")
        return "ResultGrid<[\n" + ",\n".join(shown) + "\n]>"


def score(values: Sequence[float], mode: str, scope: str) -> float | None:
    """The value of a trial that counts for this scope; None if it has reported none."""
    if not values:
        return None
    if scope == "last":
        return values[-1]
    if scope == "all":
        best = max if mode == "max" else min
        return best((value for value in values if not math.isnan(value)), default=math.nan)
    window = {"avg": values, "last-5-avg": values[-5:], "last-10-avg": values[-10:]}[scope]
    return sum(window) / len(window)


def best_report(reports: Iterable[Mapping[str, Any]], metric: str, mode: str) -> Mapping[str, Any] | None:
    """The first of the reports with the best value; None if none of them has a number."""
    best: Mapping[str, Any] | None = None
    rank: tuple[bool, float] = (False, 0.0)
    for report in reports:
        value = number(lookup(report, metric))
        if value is not None and _ranked(value, mode) > rank:
            best, rank = report, _ranked(value, mode)
    return best


def check_mode(argument: str, mode: str) -> None:
    if mode not in ("min", "max"):
        raise ValueError(f'{argument}={mode!r}): use "min" or "max"')


def _ranked(value: float, mode: str) -> tuple[bool, float]:
    """Sorts better values higher, and NaN below all of them."""
    return (False, 0.0) if math.isnan(value) else (True, value if mode == "max" else -value)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _rows_kept(result: Any) -> Iterable[Mapping[str, Any]]:
    """The rows of a result that was pickled."""
    rows: Iterable[Mapping[str, Any]] = result._rows
    return rows


def _rows_of_frame(result: TrialResult) -> Iterable[Mapping[str, Any]]:
    frame = result.metrics_dataframe
    return [] if frame is None else frame.to_dict("records")
