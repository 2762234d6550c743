"""List the runs below a storage path: their state, how far they came, and their last metrics."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from holdfast.cli import experiment_views, output, paths
from holdfast.errors import HoldfastError
from holdfast.runs.discovery import PATIENCE_S, READ_PATIENCE_S, is_run, runs_below
from holdfast.runs.stored_experiment import StoredExperiment, open_stored
from holdfast.store.location import MISSING, Location
from holdfast.store.parallel import in_parallel
from holdfast.store.run_at import run_at

# Exceptions that reading may raise if a file has intact records that no version of Holdfast writes.
_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
_HEADER = ("NAME", "STATE", "REPORTS", "LAST CHECKPOINT", "LAST CHANGE", "METRICS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "storage_path",
        metavar="STORAGE_PATH",
        nargs="?",
        help=f"where the runs are: {paths.STORAGE_HELP}",
    )


def run(arguments: argparse.Namespace) -> int:
    storage = paths.storage_location(arguments.storage_path)
    rows = in_parallel(_row, _runs(storage, is_default=arguments.storage_path is None))
    if arguments.json:
        output.print_json([{**row, "last_change": output.iso_time(row["last_change"])} for row in rows])
    elif rows:
        _print_tables([row for row in rows if row["kind"] == "run"], [row for row in rows if row["kind"] != "run"])
    else:
        output.note(f"no runs in {storage}")
    for row in rows:
        if row["problem"]:
            output.note(f"holdfast: {row['path']}: {row['problem']}")
    return 1 if any(row["problem"] for row in rows) else 0


def _runs(storage: Location, is_default: bool) -> list[Location]:
    names = run_at(storage, PATIENCE_S).directories()  # first: what may not be read is not a run for that
    if is_run(storage):
        return [storage]
    if storage.local_problem and not (is_default and storage.local_problem == MISSING):
        raise ValueError(f"{storage} {storage.local_problem}. Pass the storage_path of your runs.")
    return runs_below(storage, names)


def _print_tables(of_runs: list[dict[str, Any]], of_experiments: list[dict[str, Any]]) -> None:
    if of_runs:
        output.print_table(_HEADER, map(_cells, of_runs))
    if of_runs and of_experiments:
        output.say()
    if of_experiments:
        output.print_table(experiment_views.LIST_HEADER, map(experiment_views.cells, of_experiments))


def _row(location: Location) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": "run",
        "name": location.name,
        "path": str(location),
        "state": "unreadable",
        "reports": None,
    }
    row |= {"last_checkpoint": None, "last_change": None, "metrics": None, "problem": None}
    try:
        stored = open_stored(location, READ_PATIENCE_S)
        if isinstance(stored, StoredExperiment):
            return row | experiment_views.row(stored)
        found = stored.read(with_manifests=False)
        row |= {"state": found.state, "reports": found.last_report[0], "last_change": found.last_change}
        last = found.last_report[1]
        row["metrics"] = last and last["metrics"]
        newest = found.past.state.newest
        row["last_checkpoint"] = newest and newest.id
        if not stored.known_identity():
            row["problem"] = f"what it is was lost; holdfast verify {location} says more"
    except (HoldfastError, OSError) as error:
        row["problem"] = str(error)
    except _NONSENSE as error:  # whatever is wrong with this run, list the others
        row["problem"] = f"cannot be read ({type(error).__name__}: {error})"
    return row


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reports = "-" if row["reports"] is None else f"{row['reports']:,}"
    changed = output.local_time(row["last_change"])
    metrics = output.metrics_text(row["metrics"], 3)
    return row["name"], row["state"], reports, row["last_checkpoint"] or "-", changed, metrics
