"""A copy of a remote run's records on this machine, laid out like a run on disk, for all that reads such runs.

Checkpoints' files are not copied: their directories are there and empty. Nothing is taken from the run or changed in
it, and one that is being written meanwhile looks as it did at some moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import CheckpointDamagedError, ObjectMissingError
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import parse_manifest
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout, path_problem
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote import sequence
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.remote.fetch import get_all, in_parallel
from holdfast.store.remote.parts import files_of
from holdfast.store.remote.runfile import KEY as RUN_FILE
from holdfast.store.remote.sequence import Past

Judge = Callable[[Sequence[Record]], Callable[[str, float], bool]]


def mirror(
    objects: ObjectStore, directory: Path, *, metrics: bool = True, logs: bool = False, judge: Judge | None = None
) -> RunLayout:
    """Copy into an empty directory; NotARunError if there is no run.

    ``judge`` says by a journal which manifests count, by id and epoch: with it, what landed too late is left out.
    """
    layout = RunLayout(directory)
    past = sequence.read(objects)
    (content,) = get_all(objects, [RUN_FILE])
    if content is None and not past.records:
        raise runfile.missing(objects.url)
    directory.mkdir(parents=True, exist_ok=True)
    if content is not None:
        layout.run_file.write_bytes(content)
    _write_journal(layout, past)
    _copy_manifests(objects, layout, past, judge)
    for name in [name for name, wanted in (("metrics", metrics), ("logs", logs)) if wanted]:
        _copy_grown(objects, directory, name)
    return layout


def _write_journal(layout: RunLayout, past: Past) -> None:
    """As one segment. What is damaged there is no intact line here either, so that it is named again."""
    layout.journal_dir.mkdir()
    lines = [journal.line(r.seq, r.time, r.kind, r.body) for r in past.records]
    lines += [f"damaged: {d.path}, {d.where}\n".encode() for d in past.damage if d.where.startswith("line")]
    layout.segment_file(max(1, past.epoch)).write_bytes(b"".join(lines))


def _copy_manifests(objects: ObjectStore, layout: RunLayout, past: Past, judge: Judge | None) -> None:
    layout.checkpoints_dir.mkdir()
    listing = RemoteCheckpoints(objects).listing()
    counts = judge(past.records) if judge else lambda _id, _epoch: True
    manifests = [layout.manifest_file(id) for id in listing.committed]
    for id, file, content in zip(listing.committed, manifests, _contents(objects, layout, manifests), strict=True):
        if content is None:  # deleted meanwhile
            continue
        if past.damage or counts(id, _epoch(id, content)):
            file.write_bytes(content)
            layout.checkpoint_dir(id).mkdir()
    marks = [layout.quarantine_file(id) for id in listing.quarantined]
    marks += [layout.quarantine_reason_file(id) for id in listing.quarantined]
    for file, content in zip(marks, _contents(objects, layout, marks), strict=True):
        if content is not None:
            file.write_bytes(content)


def _contents(objects: ObjectStore, layout: RunLayout, files: Sequence[Path]) -> list[bytes | None]:
    return get_all(objects, [layout.relative(file) for file in files])


def _epoch(id: str, content: bytes) -> float:
    try:
        return parse_manifest(id, content, id).epoch
    except CheckpointDamagedError:
        return float("inf")  # to be named by whoever reads it


def _copy_grown(objects: ObjectStore, directory: Path, name: str) -> None:
    """Files that grow line by line; the last line may not be there as a whole yet."""

    def copy(file: tuple[str, list[str]]) -> None:
        key, parts = file
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as target:
            for part in parts:
                try:
                    target.write(objects.get(part))
                except ObjectMissingError:
                    break
        if name == "metrics":
            _cut_to_whole_lines(path)

    keys = [info.key for info in objects.list(f"{name}/") if path_problem(info.key) is None]
    in_parallel(copy, files_of(keys).items())


def _cut_to_whole_lines(path: Path) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with open(path, "r+b") as file:
            file.truncate(whole)
