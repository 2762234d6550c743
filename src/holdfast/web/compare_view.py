"""Runs or trials side by side: their progress, the settings that differ, and their curves in one plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.errors import NotARunError
from holdfast.pictures.ledger_bar import spelled
from holdfast.runs.comparison import differing_settings
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.runs.stored_run import StoredRun
from holdfast.ui.display_picture import value_text
from holdfast.web import wording
from holdfast.web.curve_index import CurveIndex
from holdfast.web.run_rows import QUICKLY_READ
from holdfast.web.run_view import curves_json

COMPARED = 8  # the number of colours
_METRICS = 20


@dataclass(frozen=True)
class CompareView:
    names: list[str]
    addresses: list[str]
    facts: list[tuple[str, list[str]]]
    metrics: list[tuple[str, list[str]]]
    settings: list[tuple[str, list[str]]]


def compare_view(runs: Sequence[tuple[str, StoredRun]]) -> CompareView:
    for _, stored in runs:
        if isinstance(stored, StoredExperiment):
            raise NotARunError(f"{stored.location} is an experiment. Open it and compare its trials.")
    found = [stored.read() for _, stored in runs]
    ledgers = [reading.quick_ledger(QUICKLY_READ) for reading in found]
    last = [dict(flat_items(reading.metrics or {})) for reading in found]
    names = list(dict.fromkeys(name for metrics in last for name in metrics))[:_METRICS]
    settings = differing_settings([stored.known_identity() for _, stored in runs])
    return CompareView(
        [stored.location.name for _, stored in runs],
        [address for address, _ in runs],
        [
            ("state", [reading.state for reading in found]),
            ("reports", [f"{reading.last_report[0]:,}" for reading in found]),
            ("attempts", [str(len(reading.past.attempts)) for reading in found]),
            ("failures", [str(len(ledger.failures)) for ledger in ledgers]),
            ("time", [spelled(ledger.wall_clock_s) for ledger in ledgers]),
            ("goodput", [f"{ledger.goodput * 100:.0f} %" for ledger in ledgers]),
        ],
        [
            (wording.line(name), [value_text(metrics[name]) if name in metrics else "-" for metrics in last])
            for name in names
        ],
        [
            (wording.line(name), ["-" if v is None else wording.value(v) for v in values])
            for name, values in settings.items()
        ],
    )


def compared_json(runs: Sequence[tuple[StoredRun, CurveIndex]], within_s: float) -> dict[str, Any]:
    """For each metric, the surviving curve of every run that has it."""
    found = [(run.read(with_driver=False, with_manifests=False), index) for run, index in runs]
    each = [curves_json(reading, index, within_s / len(runs)) for reading, index in found]
    metrics: dict[str, list[dict[str, Any]]] = {}
    for number, curves in enumerate(each):
        for metric in curves["metrics"]:
            xs = [x for part in metric["kept"] for x in part["x"]]
            ys = [y for part in metric["kept"] for y in part["y"]]
            metrics.setdefault(metric["name"], []).append({"run": number, "x": xs, "y": ys})
    shared = sorted(metrics.items(), key=lambda item: -len(item[1]))
    return {
        "share": min((curves["share"] for curves in each), default=1.0),
        "names": [wording.line(run.location.name) for run, _ in runs],
        "metrics": [{"name": name, "runs": found} for name, found in shared],
    }
