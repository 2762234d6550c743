"""Delete checkpoints of a run that is not running, to free space. The one that it would resume from is kept.

A running driver decides what to keep (CheckpointConfig(num_to_keep=...)), so its run is refused. A note replaces each
deleted checkpoint, so that its absence is not mistaken for damage.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from holdfast.cli import output, paths
from holdfast.cli.checkpoints.choosing import ID_HELP, chosen
from holdfast.errors import CheckpointDamagedError
from holdfast.runs.stored_run import StoredRun
from holdfast.store.manifests import Manifest

HELP = "delete checkpoints of a run that is not running"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument("ids", metavar="CHECKPOINT", nargs="*", help=ID_HELP)
    parser.add_argument("--keep", type=int, metavar="N", help="delete all but the newest N, instead of naming them")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--force", action="store_true", help="also delete the checkpoint that the run would resume from"
    )


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    if bool(arguments.ids) == (arguments.keep is not None):
        raise ValueError("name the checkpoints to delete, or use --keep N")
    if arguments.keep is not None and arguments.keep < 1:
        raise ValueError(f"--keep {arguments.keep}: must be at least 1. To delete all of them, name them.")
    with stored.store.keep_drivers_out():
        doomed = _doomed(stored, arguments)
        if not arguments.force:
            _check_resume(stored, [manifest.id for manifest in doomed])
        size = sum(entry.size for manifest in doomed for entry in manifest.files)
        if doomed and not arguments.yes and not _confirmed(stored, doomed, size):
            return 2
        for manifest in doomed:
            _delete(stored, manifest)
            if not arguments.json:
                output.say(f"deleted {manifest.id}", flush=True)
    if arguments.json:
        output.print_json({"path": str(stored.location), "deleted": [m.id for m in doomed], "size": size})
    elif not doomed:
        output.note("nothing to delete")
    return 0


def _doomed(stored: StoredRun, arguments: argparse.Namespace) -> list[Manifest]:
    if arguments.ids:
        return chosen(stored, arguments.ids)
    return chosen(stored, ())[: -arguments.keep]


def _check_resume(stored: StoredRun, doomed: list[str]) -> None:
    """The newest good checkpoint must stay, and so must newer ones, which may be repairable."""
    for manifest in reversed(stored.manifests()[0]):
        if manifest.id in doomed:
            raise ValueError(
                f"the run would resume from {manifest.id}, so it is kept. With --force it is deleted, and the run "
                "resumes from an older one or starts over"
            )
        with contextlib.suppress(CheckpointDamagedError):
            stored.verify(manifest.id)
            return


def _confirmed(stored: StoredRun, doomed: list[Manifest], size: int) -> bool:
    names = ", ".join(manifest.id for manifest in doomed)
    many = f"{len(doomed)} checkpoint{'' if len(doomed) == 1 else 's'}, {output.size_text(size)}"
    output.note(f"deleting from {stored.location}: {names} ({many})")
    if not sys.stdin.isatty():
        output.note(
            "holdfast: error: cannot ask for confirmation without a terminal. Use --yes to delete without asking."
        )
        return False
    print("delete? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    output.note("nothing was deleted")
    return False


def _delete(stored: StoredRun, manifest: Manifest) -> None:
    """First set it aside, which is one step; then remove its files."""
    why = f"deleted by hand on {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}"
    stored.store.checkpoints.quarantine(manifest.id, why)
    stored.store.checkpoints.remove_files(manifest)
