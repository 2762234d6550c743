"""``progress.csv`` in the trial's directory: one result a row, nested values in columns such as "eval/loss"."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from holdfast.core.metric_names import flat_items
from holdfast.printable import encodable_row
from holdfast.store.disk import replace_file
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial

PROGRESS = "progress.csv"
Row = frozenset[tuple[str, str]]


class CSVLoggerCallback(LoggerCallback):
    """Appends each result to ``progress.csv``. A column that comes up later is added, empty in the rows before."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._unflushed: set[_Table] = set()

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        table = self._tables.get(trial.trial_id)
        if table is None:
            table = self._tables[trial.trial_id] = _Table(Path(trial.local_path, PROGRESS))
        table.append(encodable_row(flat_items({key: value for key, value in result.items() if key != "config"})))
        self._unflushed.add(table)

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        while self._unflushed:
            self._unflushed.pop().flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        table = self._tables.pop(trial.trial_id, None)
        if table is not None:
            self._unflushed.discard(table)
            table.close()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        self._unflushed.clear()
        while self._tables:  # of trials that were left unfinished
            self._tables.popitem()[1].close()


class _Table:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._columns, rows, damaged = _read(path)
        self._written_before = {_as_row(row) for row in rows}  # until the first row that is new
        if damaged:
            self._rewrite(rows)
        self._open()

    def _open(self) -> None:
        self._file: TextIO = self._path.open("a", newline="", encoding="utf-8", errors="backslashreplace")
        self._writer = csv.writer(self._file, lineterminator="\n")

    def append(self, row: dict[str, Any]) -> None:
        if self._written_before:
            if _as_row({name: _text(value) for name, value in row.items()}) in self._written_before:
                return
            self._written_before = set()
        if list(row) == self._columns:
            self._writer.writerow(row.values())
            return
        added = [name for name in row if name not in self._columns]
        if added:
            self._file.close()
            self._columns += added
            self._rewrite(_read(self._path)[1])
            self._open()
        self._writer.writerow([row.get(name) for name in self._columns])

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        lines = [self._columns, *([row.get(name, "") for name in self._columns] for row in rows)]
        replace_file(self._path, "".join(map(_line, lines)).encode() if self._columns else b"")


def _read(path: Path) -> tuple[list[str], list[dict[str, str]], bool]:
    """Columns, whole rows, and whether there was something that is not whole: a driver may have died in a write."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return [], [], False
    lines = list(csv.reader(io.StringIO(text, newline="")))
    damaged = bool(text) and not text.endswith("\n")
    if damaged:
        lines.pop()
    columns = lines[0] if lines else []
    rows = [dict(zip(columns, line, strict=True)) for line in lines[1:] if len(line) == len(columns)]
    return columns, rows, damaged or len(rows) < len(lines) - 1


def _as_row(row: dict[str, str]) -> Row:
    return frozenset((name, text) for name, text in row.items() if text)


def _line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _text(value: Any) -> str:
    return "" if value is None else str(value)
