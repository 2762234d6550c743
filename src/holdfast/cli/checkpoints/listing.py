"""List the checkpoints of a run: report, size, metrics and validation. Their files are not read: see verify."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli import experiment_views, output, paths
from holdfast.core.run.state import ValidationStatus
from holdfast.runs.reading import Reading
from holdfast.ui.display_picture import headline

HELP = "list them: report, size, metrics, validation"
HEADER = ("REPORT", "CHECKPOINT", "COMMITTED", "SIZE", "FILES", "VALIDATION", "METRICS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    experiment_views.refuse(stored, "checkpoints")
    kept = kept_checkpoints(stored.read())
    damage = stored.manifest_damage()
    set_aside = stored.quarantined()
    if arguments.json:
        output.print_json(
            {
                "path": str(stored.location),
                "checkpoints": as_json(kept),
                "quarantined": [{"id": id, "why": why} for id, why in set_aside],
                "damage": output.damage_json(damage),
            }
        )
        return 1 if damage else 0
    if kept:
        output.print_table(HEADER, map(cells, kept))
    elif not damage:
        output.note(f"{stored.location} has no checkpoint")
    for id, why in set_aside:
        output.say(f"quarantined: {id}: {headline(why)}")
    for found in damage:
        output.say(f"damaged: {output.damage_text(found)}")
    return 1 if damage else 0


def kept_checkpoints(found: Reading) -> list[dict[str, Any]]:
    return [
        {
            "id": manifest.id,
            "report": manifest.report,
            "committed": manifest.created,
            "size": sum(entry.size for entry in manifest.files),
            "files": len(manifest.files),
            "world_size": manifest.world_size,
            "attempt": manifest.attempt_number,
            "validation": found.validation(manifest).value,
            "metrics": found.metrics_with(manifest),
        }
        for manifest in found.manifests
    ]


def as_json(kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**checkpoint, "committed": output.iso_time(checkpoint["committed"])} for checkpoint in kept]


def cells(checkpoint: dict[str, Any]) -> tuple[str, ...]:
    status = checkpoint["validation"]
    return (
        f"{checkpoint['report']:,}",
        checkpoint["id"],
        output.local_time(checkpoint["committed"]),
        output.size_text(checkpoint["size"]),
        str(checkpoint["files"]),
        "-" if status == ValidationStatus.NONE.value else status,
        output.metrics_text(checkpoint["metrics"]),
    )
