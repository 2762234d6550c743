"""Where the files of a reported checkpoint are taken from: a directory, the run's own storage, or elsewhere.

It never moves away files that a committed checkpoint consists of, whatever it is asked.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from holdfast.store import download
from holdfast.store.disk import Disk
from holdfast.store.staging import FileEntry, describe, stage
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import warn_once
from holdfast.train.reported import CheckpointUploadMode
from holdfast.worker.session import Files, Session

UploadFn = Callable[[Checkpoint, str], Checkpoint]
_TEMPFILE_NAME = re.compile(r"(tmp|holdfast-\d+-)[a-z0-9_]{8}")


def taken_from(session: Session, checkpoint: Checkpoint, mode: CheckpointUploadMode, delete: bool | None) -> Files:
    """The files of a checkpoint as they are; an empty set without a checkpoint."""
    if delete:
        _check_deletable(session, checkpoint)
    if mode is CheckpointUploadMode.NO_UPLOAD:
        return _left_in_place(session, checkpoint)
    if checkpoint.location.directory_here():
        return _directory(session, checkpoint, mode, delete)
    if _is_in_run(session, checkpoint):
        return _in_storage(session, checkpoint, checkpoint)
    return _downloaded(checkpoint)


def held(session: Session, checkpoint: Checkpoint, delete: bool | None) -> Checkpoint:
    """A checkpoint for an upload in the background. If its directory may be deleted before that, its files are moved
    out first: a surrounding ``with tempfile.TemporaryDirectory()`` ends with the report."""
    path = checkpoint.location.directory_here()
    if delete is False or not os.path.isdir(path) or _is_kept(session, path):
        return checkpoint
    if not (delete or _is_temporary(path)):
        return checkpoint
    target = Path(tempfile.mkdtemp(), "checkpoint")
    stage(Disk(), Path(path), target, move=True)
    if delete:
        shutil.rmtree(path, ignore_errors=True)
    return Checkpoint(target)


def uploaded_by(
    upload: UploadFn,
    name: str,
    session: Session,
    checkpoint: Checkpoint,
    mode: CheckpointUploadMode,
    delete: bool | None,
) -> Files:
    """The files where the user's function has put them. ``delete``: the checkpoint's own files are no longer needed."""
    uploaded = upload(checkpoint, name)
    if not isinstance(uploaded, Checkpoint):
        raise ValueError(
            f"report(checkpoint_upload_fn=…) returned {uploaded!r}. Return a Checkpoint of the uploaded files"
        )
    is_same, there = uploaded.location == checkpoint.location, uploaded.location.directory_here()
    if not there or (_is_in_run(session, uploaded) and not _is_kept(session, there)):
        files = _in_storage(session, uploaded, checkpoint)
    else:
        files = _directory(session, uploaded, mode, delete if is_same else False)
    here = checkpoint.location.directory_here()
    if delete and not is_same and here and not _is_kept(session, here):
        shutil.rmtree(here, ignore_errors=True)
    return files


def _directory(session: Session, checkpoint: Checkpoint, mode: CheckpointUploadMode, delete: bool | None) -> Files:
    path = checkpoint.path
    if not os.path.isdir(path):
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): this directory does not exist; save the files into a directory first, "
            "and report it before a surrounding `with tempfile.TemporaryDirectory()` ends"
        )
    if Path(session.location.resolved).is_relative_to(os.path.realpath(path)):  # a URL is below no directory
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): the run itself is stored in {session.location}, which is in this "
            "directory. Save checkpoints into a directory of their own."
        )
    if not any(files for _, _, files in os.walk(path)):
        _note_empty(session, path)
        return Files()
    kept = _is_kept(session, path)
    move = (mode is CheckpointUploadMode.ASYNC and _is_temporary(path)) if delete is None else delete
    return Files(path, move=move and not kept, remove=bool(delete) and not kept)


def _note_empty(session: Session, directory: str) -> None:
    """Many scripts save on rank 0 only and report a checkpoint on every rank. An empty checkpoint of another rank is
    therefore not an error."""
    if session.rank == 0:
        warn_once(
            "empty checkpoint",
            f"report(checkpoint=…) got {directory}, which has no file in it, so rank 0 adds nothing to the checkpoint; "
            "save the files before the report",
        )


def _left_in_place(session: Session, checkpoint: Checkpoint) -> Files:
    """A place without files is not an error: evaluation scripts name one only so that their metrics count."""
    _place_in_run(session, checkpoint)
    if not download.sizes(checkpoint.location):
        _note_empty(session, checkpoint.path)
        return Files()
    return _in_storage(session, checkpoint, checkpoint)


def _in_storage(session: Session, stored: Checkpoint, original: Checkpoint) -> Files:
    """Files that the user has put into the run's storage, with the digests of their local originals."""
    at = _place_in_run(session, stored)
    sizes = download.sizes(stored.location)
    if not sizes:
        raise ValueError(f"report(checkpoint={stored!r}): it has no files. Upload them before you call report().")
    local: dict[str, FileEntry] = {}
    here = original.location.directory_here()
    if os.path.isdir(here) and not stored.location.directory_here():
        local = {entry.path: entry for entry in describe(Path(here))}
    files = []
    for path, size in sizes.items():
        known = local.get(path)
        digest = known.digest if known is not None and known.size == size else ""
        files.append(FileEntry(path, size, digest, at))
    return Files(elsewhere=files)


def _place_in_run(session: Session, checkpoint: Checkpoint) -> str:
    """Relative to the run."""
    run, at = session.location.resolved, checkpoint.location.resolved
    below = at.removeprefix(f"{run}/")
    if below == at or below.startswith("checkpoints/"):
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): files that you store yourself belong below {session.location}/, but "
            "outside its checkpoints/. Use get_context().get_storage()"
            '.build_checkpoint_path_from_name("my-checkpoint")'
        )
    return below


def _is_in_run(session: Session, checkpoint: Checkpoint) -> bool:
    return checkpoint.location.resolved.startswith(f"{session.location.resolved}/")


def _downloaded(checkpoint: Checkpoint) -> Files:
    """Download a checkpoint from elsewhere in an object store, to be stored as a local directory would be."""
    return Files(checkpoint.to_directory(tempfile.mkdtemp()), move=True, remove=True)


def _check_deletable(session: Session, checkpoint: Checkpoint) -> None:
    run, at = session.location.resolved, checkpoint.location.resolved
    if run == at or run.startswith(f"{at}/"):
        raise ValueError(
            f"report(checkpoint={checkpoint!r}, delete_local_checkpoint_after_upload=True) would delete the run, which "
            f"is stored in {run}: save checkpoints into a directory of their own"
        )


def _is_temporary(directory: str) -> bool:
    """Whether ``tempfile`` created the directory or one above it. Such a directory is private to its user, and has a
    typical name or is in the temporary directory. Other temporary directories may be shared by ranks, or be meant to
    stay."""
    roots = {os.path.realpath(tempfile.gettempdir()), "/dev/shm"}
    path = Path(os.path.realpath(directory))
    if str(path.parent) in roots and _is_private(path):
        return True
    return any(_TEMPFILE_NAME.fullmatch(part.name) and _is_private(part) for part in (path, *path.parents))


def _is_private(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def _is_kept(session: Session, directory: str) -> bool:
    """Whether the files belong to a checkpoint that is committed, in this or another run, or was resumed from."""
    real = os.path.realpath(directory)
    offered = [session.resumed_from.directory] if session.resumed_from else []
    if session.initial is not None:
        offered.append(session.initial.path)
    resumed = any(real == os.path.realpath(path) or _is_below(real, path) for path in offered if path)
    return resumed or os.path.exists(f"{real}.json")


def _is_below(path: str, top: str) -> bool:
    return Path(os.path.realpath(top)) in Path(os.path.realpath(path)).parents
