"""The functions for a train function. Each checks its arguments and calls the worker's session.

``report()`` is not a barrier: it returns when the files are staged on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.errors import PreemptionInfo
from holdfast.store.layout import check_name
from holdfast.train import uploads
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import check_type
from holdfast.train.context import get_context as get_context
from holdfast.train.data import Streamed, shard_of
from holdfast.train.ray_data import RayData
from holdfast.train.reported import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from holdfast.train.validation import ValidationTaskConfig

if TYPE_CHECKING:
    from holdfast.worker.session import Files, Session


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
    """Report metrics, and optionally a checkpoint. The k-th reports of all ranks belong together: their checkpoints
    become one directory, with the metrics of rank 0.

    ``checkpoint_upload_mode``: ASYNC returns when the files are staged, SYNC when the checkpoint is committed.
    NO_UPLOAD means that the files are already in the run's storage, below
    ``get_context().get_storage().experiment_fs_path``: they become a checkpoint without a copy, and the call returns
    when that is committed. In remote storage they stay where they are; there, only the size of files that you stored
    yourself can be verified.

    ``delete_local_checkpoint_after_upload``: True moves the files, which costs nothing on the same file system, and
    deletes the directory; False copies them. None moves them in ASYNC mode if they are in a directory that ``tempfile``
    created, and copies them otherwise, so that your own directory stays unchanged.

    ``checkpoint_upload_fn(checkpoint, name)`` stores the files itself, and returns where they are now: a local
    directory, or a place in the run's own storage. In ASYNC mode it runs in the background, and this report and later
    ones count when it has returned. ``checkpoint`` need not exist before that. ``name`` is ``checkpoint_dir_name``, or
    a name that is the same on all ranks.

    ``validation``: run the trainer's validation function on this checkpoint while training continues.
    """
    session = session_for("report")
    if not isinstance(metrics, dict):
        raise TypeError(f'report(metrics={metrics!r}): pass a dict of metrics, as in {{"loss": 0.1}}')
    if checkpoint is None:
        if validation:
            raise ValueError("report(validation=…) without a checkpoint: pass checkpoint=…, or leave validation out")
        session.report(metrics)
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
    mode, delete = checkpoint_upload_mode, delete_local_checkpoint_after_upload
    files: Files | Callable[[int], Files]
    if checkpoint_upload_fn is None or mode is CheckpointUploadMode.NO_UPLOAD:
        files = uploads.taken_from(session, checkpoint, mode, delete)
        if files.is_empty:
            session.report(metrics)
            return
    else:
        upload, source = checkpoint_upload_fn, checkpoint
        if mode is CheckpointUploadMode.ASYNC:
            source = uploads.held(session, checkpoint, delete)
        unwanted = delete or source is not checkpoint

        def files(index: int) -> Files:
            name = checkpoint_dir_name or f"checkpoint_g{session.attempt_number}_{index + 1:06d}"
            return uploads.uploaded_by(upload, name, session, source, mode, unwanted)

    wait = mode is not CheckpointUploadMode.ASYNC
    session.report(metrics, files, name=checkpoint_dir_name, wait=wait, validation=task)


def _validation_task(validation: bool | ValidationTaskConfig) -> dict[str, Any] | None:
    if isinstance(validation, ValidationTaskConfig):
        return {"fn_kwargs": validation.fn_kwargs, "timeout_s": validation.timeout_s}
    check_type("report(validation", validation, bool, "pass True, False or a ValidationTaskConfig")
    return {"fn_kwargs": {}, "timeout_s": None} if validation else None


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint: the last one that this run committed, otherwise the one that it resumed from,
    otherwise None.
    """
    session = session_for("get_checkpoint")
    offer = session.current_checkpoint()
    if offer is None:
        initial: Checkpoint | None = session.initial
        return initial
    return Checkpoint.held(session.location / "checkpoints" / offer.id, offer.directory)


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Return this worker's part of a dataset. Without a name, it is the part of the only dataset. None if there is
    none.
    """
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
    if isinstance(data, Streamed):
        return data.shard(session.rank, session.world_size)
    return shard_of(dataset_name, data, session.rank, session.world_size)


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return the run's checkpoints. The last one is the best if they have a score, otherwise the newest.

    The call waits until every rank has made as many reports as this one, and all of them are committed (and validated,
    by default). After ``timeout_s`` seconds it returns the list as it is then; None waits without limit.
    """
    session = session_for("get_all_reported_checkpoints")
    check_type(
        "get_all_reported_checkpoints(consistency_mode",
        consistency_mode,
        CheckpointConsistencyMode,
        "use a CheckpointConsistencyMode",
    )
    validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    try:
        answer = session.request("checkpoints", {"validated": validated}, timeout_s)
    except TimeoutError:
        answer = session.request("checkpoints now", None, None)
    return [
        ReportedCheckpoint(
            Checkpoint(session.location / "checkpoints" / item["id"]),
            item["metrics"],
            ReportedCheckpointStatus(item["status"]),
        )
        for item in answer
    ]


def get_preemption_info() -> PreemptionInfo | None:
    """Return the nodes that are about to be preempted, or None without such a notice.

    All ranks get the same answer at the same place in their loops, as long as they have made the same number of
    reports.
    """
    notice = session_for("get_preemption_info").notice()
    if notice is None or not notice.nodes:
        return None
    return PreemptionInfo(notice.deadline_ms, {node: list(ranks) for node, ranks in notice.nodes.items()})


def checkpoint_requested() -> bool:
    """Return whether the attempt is about to end, so that a checkpoint with the next report would save the steps since
    the last one.

    This is the case before nodes are preempted, before the run gets more workers, and before a requested stop. All
    ranks get the same answer, as with ``get_preemption_info()``.
    """
    return session_for("checkpoint_requested").notice() is not None
