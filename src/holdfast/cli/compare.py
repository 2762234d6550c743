"""Compare runs or trials: how far they came, their last metrics, and the settings that differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from holdfast.cli import output, paths
from holdfast.core.metric_names import flat_items
from holdfast.printable import duration
from holdfast.runs.comparison import differing_settings
from holdfast.runs.reading import Reading
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.store.parallel import in_parallel
from holdfast.ui.display_picture import headline, value_text

_SHOWN_METRICS = 20
_CELL = 40  # characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_paths", metavar="RUN", nargs="+", help=f"two or more: {paths.RUN_HELP}")


def run(arguments: argparse.Namespace) -> int:
    if len(arguments.run_paths) < 2:
        raise ValueError("Pass two or more runs to compare. To look at one run, use holdfast show.")
    found = in_parallel(_read, arguments.run_paths)
    settings = differing_settings([reading.run.known_identity() for reading in found])
    if arguments.json:
        output.print_json({"runs": [_as_json(reading) for reading in found], "settings": settings})
        return 0
    output.print_table(("", *(reading.run.location.name for reading in found)), [*_summary(found), *_metrics(found)])
    output.say()
    output.say("Settings that differ" if settings else "All settings are the same.")
    if settings:
        output.print_table(("  setting", *(reading.run.location.name for reading in found)), _rows(settings))
    return 0


def _read(path: str) -> Reading:
    stored = paths.open_run(path)
    if isinstance(stored, StoredExperiment):
        raise ValueError(f"{stored.location} is an experiment. Pass its trials: {stored.location}/TRIAL.")
    return stored.read()


def _summary(found: Sequence[Reading]) -> list[tuple[str, ...]]:
    ledgers = [reading.quick_ledger() for reading in found]
    return [
        ("state", *(reading.state for reading in found)),
        ("reports", *(f"{reading.last_report[0]:,}" for reading in found)),
        ("checkpoints", *(f"{len(reading.manifests):,}" for reading in found)),
        ("attempts", *(str(len(reading.past.attempts)) for reading in found)),
        ("failures", *(str(len(reading.past.failures)) for reading in found)),
        ("time", *(duration(ledger.wall_clock_s) for ledger in ledgers)),
        ("goodput", *(f"{ledger.goodput:.1%}" for ledger in ledgers)),
    ]


def _metrics(found: Sequence[Reading]) -> list[tuple[str, ...]]:
    last = [dict(flat_items(reading.metrics or {})) for reading in found]
    names = list(dict.fromkeys(name for metrics in last for name in metrics))[:_SHOWN_METRICS]
    return [(name, *(value_text(metrics[name]) if name in metrics else "-" for metrics in last)) for name in names]


def _rows(settings: dict[str, list[Any]]) -> list[tuple[str, ...]]:
    return [(f"  {name}", *(headline(str(value), _CELL) for value in values)) for name, values in settings.items()]


def _as_json(reading: Reading) -> dict[str, Any]:
    ledger = reading.quick_ledger()
    return {
        "name": reading.run.location.name,
        "path": str(reading.run.location),
        "state": reading.state,
        "reports": reading.last_report[0],
        "checkpoints": len(reading.manifests),
        "attempts": len(reading.past.attempts),
        "failures": len(reading.past.failures),
        "seconds": ledger.wall_clock_s,
        "goodput": ledger.goodput,
        "metrics": reading.metrics,
    }
