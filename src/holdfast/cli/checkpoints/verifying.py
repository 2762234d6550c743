"""Compare every file of checkpoints with their manifests. Exit code 1 if one is damaged. Nothing is changed."""

from __future__ import annotations

import argparse

from holdfast.cli import output, paths
from holdfast.cli.checkpoints.choosing import ID_HELP, chosen
from holdfast.errors import CheckpointDamagedError
from holdfast.runs.stored_run import checkpoint_of

HELP = "check every byte of all checkpoints, or of some"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument("ids", metavar="CHECKPOINT", nargs="*", help=f"{ID_HELP} (default: all)")


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    unreadable = [] if arguments.ids else stored.manifest_damage()
    found = [{"id": checkpoint_of(damage), "problem": damage.what} for damage in unreadable]
    for row in found:
        _print(arguments, row)
    for manifest in chosen(stored, arguments.ids):
        row = {"id": manifest.id, "problem": ""}
        try:
            stored.verify(manifest.id)
        except CheckpointDamagedError as error:
            if not stored.has_manifest(manifest.id):
                continue  # a driver has just deleted it, or set it aside
            row["problem"] = str(error)
        found.append(row)
        _print(arguments, row)
    bad = sum(bool(row["problem"]) for row in found)
    if arguments.json:
        listed = [{"id": row["id"], "good": not row["problem"], "problem": row["problem"] or None} for row in found]
        output.print_json({"path": str(stored.location), "good": not bad, "checkpoints": listed})
    elif not found:
        output.note(f"{stored.location} has no checkpoint")
    return 1 if bad else 0


def _print(arguments: argparse.Namespace, row: dict[str, str]) -> None:
    if not arguments.json:
        output.say(f"{row['id']:<20} {'DAMAGED: ' + row['problem'] if row['problem'] else 'good'}", flush=True)
