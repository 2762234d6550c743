"""What a train function calls. Each function checks its arguments and hands over to the worker's session.

``report()`` is no barrier: it returns when the files are staged on this machine. It never moves away files that a
committed checkpoint consists of, whatever it is asked.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import PreemptionInfo
from holdfast.store.layout import check_name
from holdfast.store.location import Location
from holdfast.store.staging import FileEntry, describe
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import check_type, warn_once
from holdfast.train.context import TrainContext
from holdfast.train.data import shard_of
from holdfast.train.ray_data import RayData
from holdfast.train.reported import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from holdfast.train.validation import ValidationTaskConfig

if TYPE_CHECKING:
    from holdfast.worker.session import Session

STORAGE_PATIENCE_S = 60.0
_TEMPFILE_NAME = re.compile(r"(tmp|holdfast-\d+-)[a-z0-9_]{8}")


def session_for(function: str) -> Session:
    """The worker's session; outside a worker an error that names the function that was called."""
    from holdfast.worker import session

    return session.current(f"holdfast.train.{function}()")


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.ASYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Report metrics, and a checkpoint if there is one. The k-th reports of all ranks belong together: their
    checkpoints become one directory, and rank 0's metrics go with it.

    ``checkpoint_upload_mode``: ASYNC returns when the files are staged, SYNC when the checkpoint is committed.
    NO_UPLOAD says that the files already lie in the run's storage: they are taken from there; elsewhere it is SYNC.
    In remote storage they stay where they are; of files that you stored yourself only the size can be verified.
    ``delete_local_checkpoint_after_upload``: True lets the files be moved, which on one file system costs nothing;
    False copies them. None moves them in ASYNC mode if they lie in a directory that ``tempfile`` made, and copies them
    otherwise, so that a directory of your own stays as it is.
    ``checkpoint_upload_fn(checkpoint, name)`` puts the files elsewhere itself, and returns where they are now; in
    remote storage that must be below the run's own directory, ``get_context().get_storage().experiment_fs_path``.
    ``validation``: run the trainer's validation function on this checkpoint, beside training.
    """
    session = session_for("report")
    if not isinstance(metrics, dict):
        raise TypeError(f'report(metrics={metrics!r}): pass a dict of metrics, as in {{"loss": 0.1}}')
    if checkpoint is None:
        if validation:
            raise ValueError("report(validation=…) without a checkpoint: pass checkpoint=…, or leave validation out")
        session.report(metrics, None, name=None, move=False, wait=False, validation=None)
        return
    check_type("report(checkpoint", checkpoint, Checkpoint, "pass Checkpoint.from_directory(path)")
    check_type(
        "report(checkpoint_upload_mode", checkpoint_upload_mode, CheckpointUploadMode, "use a CheckpointUploadMode"
    )
    if checkpoint_dir_name is not None:
        check_name(checkpoint_dir_name, "report(checkpoint_dir_name")
    if validation and not session.validates:
        raise ValueError("report(validation=…): pass validation_config=ValidationConfig(fn) to the trainer first")
    task = _validation_task(validation)
    uploaded = checkpoint
    if checkpoint_upload_fn is not None:
        _existing_directory(checkpoint)
        uploaded = _upload(checkpoint_upload_fn, checkpoint, checkpoint_dir_name)
    if uploaded.location.is_remote:
        _check_no_upload(uploaded, checkpoint_upload_mode, checkpoint_upload_fn is not None)
        files = _stored_files(session, uploaded, checkpoint)
        wait = checkpoint_upload_mode is CheckpointUploadMode.SYNC
        session.report(metrics, None, name=checkpoint_dir_name, wait=wait, validation=task, elsewhere=files)
        if delete_local_checkpoint_after_upload and not checkpoint.location.is_remote:
            shutil.rmtree(checkpoint.path, ignore_errors=True)
        return
    original, directory = checkpoint.path, _existing_directory(uploaded)
    if not any(files for _, _, files in os.walk(directory)):
        _report_without_files(session, metrics, directory)
        return
    mode = _effective_mode(session, checkpoint_upload_mode, directory)
    uploaded_elsewhere = directory != original
    delete = False if uploaded_elsewhere else delete_local_checkpoint_after_upload
    session.report(
        metrics,
        directory,
        name=checkpoint_dir_name,
        move=_may_move(session, directory, mode, delete),
        wait=mode is CheckpointUploadMode.SYNC,
        validation=task,
    )
    if uploaded_elsewhere and delete_local_checkpoint_after_upload and not _is_kept(session, original):
        shutil.rmtree(original, ignore_errors=True)


def _report_without_files(session: Session, metrics: dict[str, Any], directory: str) -> None:
    """Many scripts save on rank 0 only and report a checkpoint on every rank: the others' is empty, and no mistake."""
    if session.rank == 0:
        warn_once(
            "empty checkpoint",
            f"report(checkpoint=…) got {directory}, which has no file in it, so rank 0 adds nothing to the checkpoint; "
            "save the files before the report",
        )
    session.report(metrics, None, name=None, move=False, wait=False, validation=None)


def _existing_directory(checkpoint: Checkpoint) -> str:
    if not os.path.isdir(checkpoint.path):
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): this directory does not exist; save the files into a directory first, "
            "and report it before a surrounding `with tempfile.TemporaryDirectory()` ends"
        )
    return checkpoint.path


def _upload(upload: Callable[[Checkpoint, str], Checkpoint], checkpoint: Checkpoint, name: str | None) -> Checkpoint:
    uploaded = upload(checkpoint, name or f"checkpoint_{uuid.uuid4().hex[:16]}")
    if not isinstance(uploaded, Checkpoint):
        raise TypeError(
            f"report(checkpoint_upload_fn=…) returned {uploaded!r}: return a Checkpoint of where the files are"
        )
    return uploaded


def _check_no_upload(checkpoint: Checkpoint, mode: CheckpointUploadMode, by_function: bool) -> None:
    if not by_function and mode is not CheckpointUploadMode.NO_UPLOAD:
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): it is in remote storage already; say so with "
            "checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD, or pass a local directory"
        )


def _stored_files(session: Session, stored: Checkpoint, original: Checkpoint) -> list[FileEntry]:
    """What the user has put into the run's storage, with the digests of the local files that it was made from."""
    at = _relative(stored, session.location)
    objects = stored.location.open(STORAGE_PATIENCE_S)
    try:
        sizes = {info.key: info.size for info in objects.list()}
    finally:
        objects.close()
    if not sizes:
        raise ValueError(f"report(checkpoint={stored!r}): there is no file; upload the files before the report")
    local: dict[str, FileEntry] = {}
    if not original.location.is_remote:
        local = {entry.path: entry for entry in describe(Path(original.path))}
    files = []
    for path, size in sizes.items():
        known = local.get(path)
        digest = known.digest if known is not None and known.size == size else ""
        files.append(FileEntry(path, size, digest, at))
    return files


def _relative(checkpoint: Checkpoint, run: Location) -> str:
    below = str(checkpoint.location).removeprefix(f"{run}/")
    if below == str(checkpoint.location) or below.startswith("checkpoints/"):
        raise ValueError(
            f"report(checkpoint={checkpoint!r}): what you store yourself must be below {run}/, and not in its "
            "checkpoints/, so that it belongs to the run: use another directory there"
        )
    return below


def _effective_mode(session: Session, mode: CheckpointUploadMode, directory: str) -> CheckpointUploadMode:
    if mode is not CheckpointUploadMode.NO_UPLOAD or _is_below(directory, session.run_dir):
        return mode
    warn_once(
        "NO_UPLOAD outside of the run",
        f"report(checkpoint_upload_mode=NO_UPLOAD): {directory} is not in the run's storage {session.run_dir}, so it "
        "is copied there as with SYNC; save into a directory below it to avoid the copy across file systems",
    )
    return CheckpointUploadMode.SYNC


def _may_move(session: Session, directory: str, mode: CheckpointUploadMode, delete: bool | None) -> bool:
    if delete is None:
        delete = mode is CheckpointUploadMode.ASYNC and _is_temporary(directory)
    return delete and not _is_kept(session, directory)


def _is_temporary(directory: str) -> bool:
    """Whether ``tempfile`` made the directory, or one above it: such a one is private to its user, and has a name of
    that kind or lies where temporary files go. Others in a temporary place may be shared by ranks, or kept."""
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


def _validation_task(validation: bool | ValidationTaskConfig) -> dict[str, Any] | None:
    if isinstance(validation, ValidationTaskConfig):
        return {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    check_type("report(validation", validation, bool, "pass True, False or a ValidationTaskConfig")
    return {"fn_kwargs": {}, "timeout_s": None} if validation else None


def get_checkpoint() -> Checkpoint | None:
    """The newest checkpoint: the last one that this run committed, else the one that it resumed from, else None."""
    session = session_for("get_checkpoint")
    offer = session.current_checkpoint()
    if offer is None:
        initial: Checkpoint | None = session.initial
        return initial
    return Checkpoint.held(session.location / "checkpoints" / offer.id, offer.directory)


def get_context() -> TrainContext:
    """Who this worker is: its ranks, the world size, the run."""
    return TrainContext(session_for("get_context"))


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of the dataset of that name; without a name, of the only one. None if there are none."""
    session = session_for("get_dataset_shard")
    known = sorted(session.datasets)
    if not known:
        return None
    if dataset_name is None:
        if len(known) > 1:
            raise ValueError(f"get_dataset_shard(): name one of the datasets {', '.join(map(repr, known))}")
        dataset_name = known[0]
    if dataset_name not in session.datasets:
        raise KeyError(
            f"get_dataset_shard({dataset_name!r}): no such dataset; the trainer got {', '.join(map(repr, known))}"
        )
    data = session.datasets[dataset_name]
    if isinstance(data, RayData):
        return data.shard(session)
    return shard_of(dataset_name, data, session.rank, session.world_size)


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The run's checkpoints, oldest first, once all that was reported so far is committed (and validated, by the
    default mode). ``TimeoutError`` after ``timeout_s`` seconds; None waits without limit."""
    session = session_for("get_all_reported_checkpoints")
    check_type(
        "get_all_reported_checkpoints(consistency_mode",
        consistency_mode,
        CheckpointConsistencyMode,
        "use a CheckpointConsistencyMode",
    )
    validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    answer = session.request("checkpoints", {"validated": validated}, timeout_s)
    return [
        ReportedCheckpoint(
            Checkpoint(session.location / "checkpoints" / item["id"]),
            item["metrics"],
            ReportedCheckpointStatus(item["status"]),
        )
        for item in answer
    ]


def get_preemption_info() -> PreemptionInfo | None:
    """The nodes that are about to be taken away; None while there is no such notice. All ranks get the same answer at
    the same place in their loops, as long as they make the same number of reports before it."""
    notice = session_for("get_preemption_info").notice()
    if notice is None or not notice.nodes:
        return None
    return PreemptionInfo(notice.deadline_ms, {node: list(ranks) for node, ranks in notice.nodes.items()})


def checkpoint_requested() -> bool:
    """Whether the group is about to end and a checkpoint with the next report would save the steps since the last one:
    before nodes are taken away, before the group is made larger, before a requested stop. The same on all ranks, as
    with ``get_preemption_info()``."""
    return session_for("checkpoint_requested").notice() is not None
