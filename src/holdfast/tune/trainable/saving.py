"""The content of a checkpoint of a class ``Trainable``: the files that ``save_checkpoint`` wrote, or the dict that it
returned; beside them the progress of the trainable.

The dict is a pickle, because it may hold anything. Only the trial's own process reads it back, never the driver, and
only after it was compared with the digest in the checkpoint's manifest: here, or by the node that fetched it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.errors import CheckpointDamagedError
from holdfast.store import staging, values
from holdfast.store.manifests import parse_manifest
from holdfast.store.regular import read_whole

DICT_FILE = "_dict_checkpoint.pkl"
PROGRESS_FILE = "_trainable_progress.json"


def write(trainable: str, directory: str, returned: Any, progress: dict[str, Any]) -> None:
    """Complete what ``save_checkpoint`` wrote into the directory. ``trainable`` is the name of its class."""
    if isinstance(returned, dict):
        with open(os.path.join(directory, DICT_FILE), "wb") as file:
            cloudpickle.dump(returned, file)
    elif returned is not None and not _is_directory(returned, directory):
        raise TypeError(
            f"{trainable}.save_checkpoint returned {returned!r:.200}: save files into the directory that it is given "
            "and return None, or return a dict"
        )
    with open(os.path.join(directory, PROGRESS_FILE), "wb") as file:
        file.write(values.encode(progress, "the progress of the trainable"))


def read(directory: str) -> Any:
    """What ``load_checkpoint`` gets: the dict that was saved, or the directory."""
    path = Path(directory, DICT_FILE)
    if not path.exists():
        return directory
    _verify(Path(directory))
    with open(path, "rb") as file:
        return cloudpickle.load(file)


def read_progress(directory: str) -> dict[str, Any]:
    """How far the trainable had come; nothing if the checkpoint is from elsewhere."""
    try:
        data = Path(directory, PROGRESS_FILE).read_bytes()
    except FileNotFoundError:
        return {}
    progress: dict[str, Any] = values.decode(data)
    return progress


def _is_directory(returned: Any, directory: str) -> bool:
    """Older trainables return the directory that they were given."""
    return isinstance(returned, (str, os.PathLike)) and os.path.realpath(returned) == os.path.realpath(directory)


def _verify(directory: Path) -> None:
    """Compare the pickle with the manifest of a committed checkpoint. A checkpoint elsewhere belongs to the user and is
    not compared."""
    manifest_file = directory.with_name(f"{directory.name}.json")
    try:
        line = read_whole(manifest_file)
    except FileNotFoundError:
        return
    entries = {entry.path: entry for entry in parse_manifest(directory.name, line, str(manifest_file)).files}
    if DICT_FILE not in entries:
        raise CheckpointDamagedError(f"Checkpoint {directory} is damaged: {DICT_FILE} does not belong to it")
    problem = staging.difference(directory, entries[DICT_FILE])
    if problem:
        raise CheckpointDamagedError(f"Checkpoint {directory} is damaged: {problem}")
