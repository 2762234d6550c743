"""``progress.csv`` in the trial's directory: one row per result, nested values in columns such as "eval/loss"."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.printable import encodable_row
from holdfast.store.disk import replace_file
from holdfast.trackers.trial_callback import Trial
from holdfast.trackers.trial_files import AppendedFile, TrialFileLogger

PROGRESS = "progress.csv"
Row = frozenset[tuple[str, str]]


class CSVLoggerCallback(TrialFileLogger["_Table"]):
    """Appends each result to ``progress.csv``. A metric that appears later gets a new column, which is empty in earlier
    rows.
    """

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        row = flat_items({key: value for key, value in result.items() if key != "config"})
        self._file_of(trial).append(encodable_row(row))

    def _open(self, trial: Trial) -> _Table:
        return _Table(Path(trial.local_path, PROGRESS), self._is_ours)


class _Table(AppendedFile):
    def __init__(self, path: Path, is_ours: Callable[[], bool]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._columns, rows, damaged = _read(path)
        self._written_before = {_as_row(row) for row in rows}  # until the first new row
        if damaged and is_ours():
            _rewrite(path, self._columns, rows)
        super().__init__(path, is_ours)

    def append(self, row: dict[str, Any]) -> None:
        if self._written_before:
            if _as_row({name: _text(value) for name, value in row.items()}) in self._written_before:
                return
            self._written_before = set()
        added = [name for name in row if name not in self._columns] if list(row) != self._columns else []
        if added:
            self.close()
            self._columns += added
            if self.is_ours():
                _rewrite(self.path, self._columns, _read(self.path)[1])
            super().__init__(self.path, self.is_ours)
        self.add(_line([row.get(name) for name in self._columns]))


def _rewrite(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    lines = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    replace_file(path, b"".join(map(_line, lines)) if columns else b"")


def _read(path: Path) -> tuple[list[str], list[dict[str, str]], bool]:
    """The columns, the whole rows, and whether a torn row was found: the driver may have been killed during a write."""
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


def _line(cells: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode(errors="backslashreplace")


def _text(value: Any) -> str:
    return "" if value is None else str(value)
