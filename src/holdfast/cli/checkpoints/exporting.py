"""Copy a checkpoint's files, verified, into a new directory. The run is not changed, and need not be at rest."""

from __future__ import annotations

import argparse
import os
import shutil
import uuid
from pathlib import Path

from holdfast.cli import output, paths
from holdfast.cli.checkpoints.choosing import ID_HELP, best, chosen
from holdfast.errors import CheckpointDamagedError
from holdfast.store import staging
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest, is_user_metadata

HELP = "copy a checkpoint's files into a new directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument("ids", metavar="CHECKPOINT", nargs="*", help=f"{ID_HELP} (default: the newest)")
    parser.add_argument("--best", action="store_true", help="the best by the run's CheckpointConfig, or by --metric")
    parser.add_argument("--metric", metavar="NAME", help="the metric that --best uses")
    parser.add_argument(
        "--mode", choices=("max", "min"), default="max", help="whether a higher or lower value is better (default: max)"
    )
    parser.add_argument("--to", metavar="DIRECTORY", required=True, help="a new or empty directory")


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    target = Path(os.path.abspath(os.path.expanduser(arguments.to)))
    _check(target)
    if len(arguments.ids) > 1:
        raise ValueError("name only one checkpoint: each needs its own directory")
    if arguments.metric and not arguments.best:
        raise ValueError("--metric works only with --best: use --best --metric NAME")
    if arguments.best and arguments.ids:
        raise ValueError("name a checkpoint or use --best, not both")
    found = chosen(stored, arguments.ids)
    if not found:
        raise ValueError(f"{stored.location} has no checkpoint")
    manifest = best(stored, arguments.metric, arguments.mode) if arguments.best else found[-1]
    _export(stored.location / "checkpoints" / manifest.id, manifest, target)
    if arguments.json:
        size = sum(entry.size for entry in manifest.files)
        output.print_json({"id": manifest.id, "path": str(target), "files": len(manifest.files), "size": size})
    else:
        output.say(f"{manifest.id} (report {manifest.report:,}) is in {target}")
    return 0


def _check(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise ValueError(f"{target} already exists. Choose an empty directory.")
    if not target.parent.is_dir():
        raise ValueError(f"--to {target}: {target.parent} does not exist. Create it first.")


def _export(source: Location, manifest: Manifest, target: Path) -> None:
    """The directory gets its name only after all files have been compared with the manifest."""
    from holdfast.train.checkpoint import Checkpoint

    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        partial.mkdir()
    except OSError as error:
        raise ValueError(f"--to {target}: {partial.parent} cannot be written: {error.strerror}") from None
    try:
        try:
            Checkpoint(source).to_directory(partial)
        except (FileNotFoundError, shutil.Error) as error:
            raise CheckpointDamagedError(
                f"{source} no longer exists. A driver may have just deleted it: {error}"
            ) from error
        problems = staging.compare(partial, manifest.files, ignore=is_user_metadata)
        if problems:
            raise CheckpointDamagedError(f"{source} is damaged, and was not exported: {'; '.join(problems[:5])}")
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
