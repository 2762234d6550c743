"""Which run, or which storage path, an argument means: a path, a URL, or the name of a run."""

from __future__ import annotations

import os

from holdfast import settings
from holdfast.errors import NotARunError
from holdfast.runs.discovery import PATIENCE_S, READ_PATIENCE_S, is_run, runs_below
from holdfast.runs.stored_experiment import StoredTrial, open_stored, trial_at
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.run_at import run_at

RUN_HELP = "the directory or URL of a run, an experiment or a trial, or its name in the default storage path"
STORAGE_HELP = "a directory or URL (default: HOLDFAST_STORAGE_PATH, else ~/holdfast_results)"


def open_run(text: str) -> StoredRun:
    """The run, experiment or trial that is meant."""
    location = _parse(text)
    default = storage_location(None)
    if location.local_problem and "/" not in text and is_run(default / text):
        return open_stored(default / text, READ_PATIENCE_S)
    if is_run(location):
        return open_stored(location, READ_PATIENCE_S)
    found = _trial(location, default)
    if found is not None:
        return found
    if not run_at(location, PATIENCE_S).is_there():
        raise NotARunError(
            f"{location} does not exist. Pass the directory of a run, or the name of a run in {default} "
            "(holdfast ls lists them)."
        )
    if runs_below(location):
        raise NotARunError(f"{location} is a directory of runs, not a run. Try: holdfast ls {location}")
    if os.path.isfile(str(location)):
        raise NotARunError(f"{location} is a file. Pass the directory of a run: <storage_path>/<name>.")
    raise NotARunError(
        f"{location} is not a Holdfast run: it has no run.json. Pass the directory of a run: <storage_path>/<name>."
    )


def _trial(location: Location, default: Location) -> StoredTrial | None:
    """By the trial's directory, its name or its id, below its experiment; that may be given by its name alone, too."""
    by_name = default / location.parent.name / location.name
    for place in (location, *([by_name] if location.parent.local_problem else [])):
        if is_run(place.parent):
            found = trial_at(place, READ_PATIENCE_S)
            if found is not None:
                return found
    return None


def storage_location(text: str | None) -> Location:
    return _parse(settings.load().storage_path if text is None else text)


def _parse(text: str) -> Location:
    if not text:
        raise ValueError("the path is empty. Pass a directory or a URL.")
    try:
        return Location.parse("(path", text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("(path=").replace("): ", ": ", 1)) from None
