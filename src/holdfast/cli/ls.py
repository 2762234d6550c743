"""List the runs below a storage path: their state, how far they came, and what they last did."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from holdfast.cli import experiments, output, paths
from holdfast.errors import HoldfastError
from holdfast.runs.stored_experiment import StoredExperiment, open_stored
from holdfast.store.location import MISSING, Location
from holdfast.store.parallel import in_parallel
from holdfast.store.run_at import run_at

# What reading may raise when somebody has written intact records that no version of Holdfast writes.
_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)


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
    names = run_at(storage, paths.PATIENCE_S).directories()  # first: what may not be read is not a run for that
    if paths.is_run(storage):
        return [storage]
    if storage.local_problem and not (is_default and storage.local_problem == MISSING):
        raise ValueError(f"{storage} {storage.local_problem}. Give the storage_path of your runs.")
    return paths.runs_below(storage, names)


def _print_tables(of_runs: list[dict[str, Any]], of_experiments: list[dict[str, Any]]) -> None:
    if of_runs:
        output.print_table(("NAME", "STATE", "REPORTS", "LAST CHECKPOINT", "LAST CHANGE"), map(_cells, of_runs))
    if of_runs and of_experiments:
        output.say()
    if of_experiments:
        output.print_table(experiments.LIST_HEADER, map(experiments.cells, of_experiments))


def _row(location: Location) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": "run",
        "name": location.name,
        "path": str(location),
        "state": "unreadable",
        "reports": None,
    }
    row |= {"last_checkpoint": None, "last_change": None, "problem": None}
    try:
        stored = open_stored(location, paths.READ_PATIENCE_S)
        if isinstance(stored, StoredExperiment):
            return row | experiments.row(stored)
        found = stored.read(with_manifests=False)
        row |= {"state": found.state, "reports": found.last_report[0], "last_change": found.last_change}
        newest = found.past.state.newest
        row["last_checkpoint"] = newest and newest.id
        if not stored.known_identity():
            row["problem"] = f"what it is was lost; holdfast verify {location} says more"
    except (HoldfastError, OSError) as error:
        row["problem"] = str(error)
    except _NONSENSE as error:  # whatever somebody has made of this one, the others are listed
        row["problem"] = f"cannot be read ({type(error).__name__}: {error})"
    return row


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reports = "-" if row["reports"] is None else f"{row['reports']:,}"
    return row["name"], row["state"], reports, row["last_checkpoint"] or "-", output.local_time(row["last_change"])
