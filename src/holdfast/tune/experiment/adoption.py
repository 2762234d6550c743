"""A checkpoint of one trial becomes another one's, to go on from. Only while the one that gets it does not run.

What the trial has itself from that point on goes first: if the driver dies in between, the exploit is decided again
when the journal is replayed, and done again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from msgspec import structs

from holdfast.core.state import CheckpointRecord
from holdfast.driver.recovery import score_of
from holdfast.errors import CheckpointDamagedError
from holdfast.store.checkpoints import CheckpointStore, FileEntry, Manifest, Shard
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.remote.checkpoints import RemoteCheckpoints

_OWN_GENERATION = 0  # of no group


def adopt(
    donor: Location, trial: Location, number: int | None, mark: str, score_attribute: str | None, patience_s: float
) -> CheckpointRecord:
    """The donor's checkpoint of that number, or its newest, under a name of its own. CheckpointDamagedError if the
    donor has it no more."""
    if trial.path is not None and donor.path is not None:
        manifest = _on_disk(RunLayout(donor.path), RunLayout(trial.path), number, mark)
    else:
        manifest = _remote(donor, trial, number, mark, patience_s)
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


def _on_disk(donor: RunLayout, trial: RunLayout, number: int | None, mark: str) -> Manifest:
    source = _chosen(CheckpointStore(donor).scan()[0], number, donor.root)
    store = CheckpointStore(trial)
    manifest = _renamed(source, mark)
    staged = trial.shard_dir(_OWN_GENERATION, 0, 0)
    if staged.exists():
        shutil.rmtree(staged)
    shutil.copytree(donor.checkpoint_dir(source.id), staged, copy_function=_link)
    CheckpointStore(donor).verify(source.id)
    for old in store.scan()[0]:
        if old.report >= manifest.report:
            store.delete(old.id)
    shard = Shard(0, str(staged), store.seal(staged))
    return store.commit(manifest, [shard])


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
        source = _chosen([from_.read_manifest(id) for id in from_.listing().committed], number, donor)
        manifest = _renamed(source, mark)
        for id in to.listing().committed:
            if to.read_manifest(id).report >= manifest.report:
                to.delete(id)
        files: list[FileEntry] = []
        with tempfile.TemporaryDirectory(prefix="holdfast-adoption-") as scratch:
            for entry in source.files:
                path = Path(scratch, "file")
                there.download(entry.key(source.id), path, entry.size)
                own = structs.replace(entry, at="")
                here.upload(path, own.key(manifest.id))
                files.append(own)
                path.unlink()
        return to.commit(structs.replace(manifest, files=files))
    finally:
        there.close()
        here.close()
