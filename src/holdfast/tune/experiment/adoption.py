"""A checkpoint of one trial becomes another one's, to go on from. Only while the one that gets it does not run.

What the trial has itself from that point on goes last, when the other is committed: whatever fails on the way, it still
has a newest one. If the driver dies in between, the exploit is decided again when the journal is replayed, and what is
committed by then is used: the donor may have it no more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from msgspec import structs

from holdfast.core.run.state import CheckpointRecord
from holdfast.driver.recovery import score_of
from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.store.checkpoints import CheckpointStore, FileEntry, Manifest, Shard
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.staging import difference

_OWN_GENERATION = 0  # of no group


def adopt(
    donor: Location, trial: Location, number: int | None, mark: str, score_attribute: str | None, patience_s: float
) -> CheckpointRecord:
    """The donor's checkpoint of that number, or its newest, under a name of its own; no other exploit of the trial has
    that mark. StorageError if the donor has it no more, or it cannot be copied."""
    try:
        if trial.path is not None and donor.path is not None:
            manifest = _on_disk(RunLayout(donor.path), RunLayout(trial.path), number, mark)
        else:
            manifest = _remote(donor, trial, number, mark, patience_s)
    except OSError as error:
        why = error.args[0][0][-1] if isinstance(error, shutil.Error) else error  # it lists every file
        raise StorageError(f"a checkpoint of {donor} could not be copied: {why}") from error
    return CheckpointRecord(manifest.id, manifest.report, score_of(manifest.metrics, score_attribute))


def _chosen(manifests: list[Manifest], number: int | None, donor: Location | Path) -> Manifest:
    fitting = [manifest for manifest in manifests if number in (None, manifest.report)]
    if not fitting:
        asked = "a checkpoint" if number is None else f"the checkpoint of report {number}"
        raise CheckpointDamagedError(f"{donor} does not have {asked} any more: keep more with num_to_keep")
    return max(fitting, key=lambda manifest: manifest.report)


def _renamed(manifest: Manifest, mark: str) -> Manifest:
    id = f"checkpoint_{manifest.report:06d}-{mark}"
    return structs.replace(manifest, id=id, generation=_OWN_GENERATION, index=0, created=time.time(), validation=None)


def _adopted(own: list[Manifest], number: int | None, mark: str) -> Manifest | None:
    """What an earlier driver, which died before it could write that down, has adopted."""
    fitting = (manifest for manifest in own if number in (None, manifest.report))
    return next((manifest for manifest in fitting if manifest.id.endswith(f"-{mark}")), None)


def _replaced(own: list[Manifest], by: Manifest) -> list[str]:
    """The newest last: as long as not all are gone, it is what the trial goes on from."""
    by_age = sorted(own, key=lambda manifest: manifest.report)
    return [manifest.id for manifest in by_age if manifest.report >= by.report and manifest.id != by.id]


def _on_disk(donor: RunLayout, trial: RunLayout, number: int | None, mark: str) -> Manifest:
    store = CheckpointStore(trial)
    own = store.scan()[0]
    manifest = _adopted(own, number, mark)
    if manifest is None:
        source = _chosen(CheckpointStore(donor).scan()[0], number, donor.root)
        staged = trial.shard_dir(_OWN_GENERATION, 0, 0)
        if staged.exists():
            shutil.rmtree(staged)
        shutil.copytree(donor.checkpoint_dir(source.id), staged, copy_function=_link)
        CheckpointStore(donor).verify(source.id)
        manifest = store.commit(_renamed(source, mark), [Shard(0, str(staged), store.seal(staged))])
    for id in _replaced(own, manifest):
        store.delete(id)
    return manifest


def _link(source: str, target: str) -> None:
    """What is committed is never written to again, so two checkpoints can share it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remote(donor: Location, trial: Location, number: int | None, mark: str, patience_s: float) -> Manifest:
    there, here = donor.open(patience_s), trial.open(patience_s)
    try:
        from_, to = RemoteCheckpoints(there), RemoteCheckpoints(here)
        own = _intact(to)
        manifest = _adopted(own, number, mark)
        if manifest is None:
            source = _chosen(_intact(from_), number, donor)
            manifest = to.commit(_copied(there, here, source, _renamed(source, mark)))
        for id in _replaced(own, manifest):
            to.delete(id)
        return manifest
    finally:
        there.close()
        here.close()


def _intact(checkpoints: RemoteCheckpoints) -> list[Manifest]:
    found = (checkpoints.read_intact(id) for id in checkpoints.listing().committed)
    return [manifest for manifest in found if manifest is not None]


def _copied(there: ObjectStore, here: ObjectStore, source: Manifest, target: Manifest) -> Manifest:
    files: list[FileEntry] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-adoption-") as scratch:
        for entry in source.files:
            path = Path(scratch, "file")
            there.download(entry.key(source.id), path, entry.size)
            if (problem := difference(Path(scratch), structs.replace(entry, path="file"))) is not None:
                raise CheckpointDamagedError(f"Checkpoint {source.id} is damaged: {problem}")
            own = structs.replace(entry, at="")
            here.upload(path, own.key(target.id))
            files.append(own)
            path.unlink()
    return structs.replace(target, files=files)
