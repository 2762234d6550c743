"""List the runs below a storage path: their state, how far they came, and what they last did."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli import output, paths, reading
from holdfast.errors import StorageError

HELP = "list the runs below a storage path"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "storage_path",
        metavar="STORAGE_PATH",
        nargs="?",
        help="where the runs are (default: HOLDFAST_STORAGE_PATH, else ~/holdfast_results)",
    )


def run(arguments: argparse.Namespace) -> int:
    storage = paths.storage_directory(arguments.storage_path)
    rows = [_row(root) for root in _runs(storage, is_default=arguments.storage_path is None)]
    if arguments.json:
        output.print_json([{**row, "last_change": output.iso_time(row["last_change"])} for row in rows])
    elif rows:
        header = ("NAME", "STATE", "REPORTS", "LAST CHECKPOINT", "LAST CHANGE")
        output.print_table(header, map(_cells, rows))
    else:
        output.note(f"no runs in {storage}")
    for row in rows:
        if row["problem"]:
            output.note(f"holdfast: {row['path']}: {row['problem']}")
    return 1 if any(row["problem"] for row in rows) else 0


def _runs(storage: Path, is_default: bool) -> list[Path]:
    if paths.is_run(storage):
        return [storage]
    if not storage.exists() and is_default:
        return []
    if not storage.is_dir():
        what = "is no directory" if storage.exists() else "does not exist"
        raise ValueError(f"{storage} {what}. Give the storage_path of your runs.")
    return paths.runs_below(storage)


def _row(root: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": root.name, "path": str(root), "state": "unreadable", "reports": None}
    row |= {"last_checkpoint": None, "last_change": None, "problem": None}
    try:
        run = reading.read(root)
        row |= {"state": run.state, "reports": run.last_report[0], "last_change": run.last_change}
        row["last_checkpoint"] = run.manifests[-1].id if run.manifests else None
        if not reading.identity(run.layout):
            row["problem"] = f"what it is was lost; holdfast verify {root} says more"
    except (StorageError, OSError) as error:
        row["problem"] = str(error)
    return row


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reports = "-" if row["reports"] is None else f"{row['reports']:,}"
    return row["name"], row["state"], reports, row["last_checkpoint"] or "-", output.local_time(row["last_change"])
