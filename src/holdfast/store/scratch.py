"""Where this machine keeps the files of runs on object stores: pending checkpoints, reports, and downloads.

All of it is below one private directory of the user, which no other user can read or write.

The files of a run, of its driver and of each node, belong to the epoch of a driver: ``<run>/epoch-<number>``. The next
driver takes them over by a rename. So if a stopped driver continues after another one took over, it finds nothing under
the names that it knows, and removes only its own files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from holdfast.private_dirs import make_private
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location

REMEDY = "Set HOLDFAST_SCRATCH_DIR to a directory of your own, or delete this one."
_TRIALS = "trials"
_EPOCH = re.compile(r"epoch-(\d{6,})")


def scratch_root(scratch_dir: str) -> Path:
    """``scratch_dir`` is the setting; empty: the temporary directory."""
    return Path(os.path.abspath(os.path.expanduser(scratch_dir) or tempfile.gettempdir()), f"holdfast-{os.geteuid()}")


def make_scratch_root(scratch_dir: str) -> Path:
    return make_private(scratch_root(scratch_dir), REMEDY)


def run_directory(root: Path, location: Location, id: str) -> Path:
    """The run's directory: the same for every driver of this run, different for every other run."""
    told_by = f"{location.identity}\0{id}".encode()
    return root / f"{location.name}-{hashlib.sha256(told_by).hexdigest()[:12]}"


def epoch_directory(run: Path, epoch: int) -> Path:
    return run / f"epoch-{epoch:06d}"


def trial_directory(experiment: Path, name: str) -> Path:
    return experiment / _TRIALS / name


def homes_here(root: Path, location: Location, id: object) -> list[RunLayout]:
    """The directories on this machine in which a run's checkpoints wait until they are committed: the run's own, or
    those of the driver and of each node in every epoch. ``id``: the run's, if known."""
    if location.path is not None:
        return [RunLayout(location.path)]
    if not isinstance(id, str):
        return []
    return [RunLayout(home) for epoch in entries(run_directory(root, location, id)) for home in entries(epoch)]


def entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # it does not exist, or not any more
        return []


def take_over(directory: Path, owner: str) -> Path:
    """Move the files of an owner, the driver or a node, from the last epoch that has any into this epoch's directory.
    What is left of earlier epochs is removed."""
    own = directory / owner
    directory.mkdir(parents=True, exist_ok=True)
    earlier = _epochs(directory.parent, before=_number(directory))
    for epoch in reversed(earlier):
        if not own.exists():
            with contextlib.suppress(FileNotFoundError):
                os.rename(epoch / owner, own)
        shutil.rmtree(epoch / owner, ignore_errors=True)
        _remove_if_empty(epoch)
    return own


def remove(directory: Path, owner: str | None = None) -> None:
    """Remove the files of this epoch and of earlier ones, or only those of the owner. Later epochs stay."""
    if owner is not None:
        shutil.rmtree(directory / owner, ignore_errors=True)
        _remove_if_empty(directory)
    else:
        for epoch in _epochs(directory.parent, before=_number(directory) + 1):
            shutil.rmtree(epoch, ignore_errors=True)
        _remove_if_empty(directory.parent / _TRIALS)
    _remove_if_empty(directory.parent)


def _epochs(run: Path, before: int) -> list[Path]:
    names = os.listdir(run) if run.is_dir() else []
    return sorted((run / n for n in names if _EPOCH.fullmatch(n) and _number(Path(n)) < before), key=_number)


def _number(directory: Path) -> int:
    return int(directory.name.rpartition("-")[2])


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()
