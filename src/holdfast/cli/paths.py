"""Which run, or which storage path, an argument means: a path, a URL, or the name of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast import settings
from holdfast.errors import NotARunError
from holdfast.runs.history import read_identity, read_records
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.objects.base import Level
from holdfast.store.remote.fetch import in_parallel

PATIENCE_S = 4.0  # with the first contact: a person waits
READ_PATIENCE_S = 30.0  # with storage that has answered; also the time that one request may take
RUN_HELP = "the directory or URL of a run, an experiment or a trial, or its name in the default storage path"
STORAGE_HELP = "a directory or URL (default: HOLDFAST_STORAGE_PATH, else ~/holdfast_results)"


@dataclass(frozen=True, eq=False)
class TrialLocation(Location):
    """Of a trial, whose journal is a part of its experiment's."""

    trial: str = ""  # its id

    @property
    def experiment(self) -> Location:
        return Location(self.root, super().parent.key, self.options, self.filesystem)


def run_location(text: str) -> Location:
    location = _parse(text)
    if location.path is not None and not location.path.exists() and "/" not in text:
        by_name = storage_location(None) / text
        if is_run(by_name):
            return by_name
    if is_run(location):
        return location
    trial = _trial_location(location)
    if trial is not None:
        return trial
    if not _is_there(location):
        raise NotARunError(
            f"{location} does not exist. Give the directory of a run, or the name of one in "
            f"{storage_location(None)}; holdfast ls lists them."
        )
    if runs_below(location):
        raise NotARunError(f"{location} is no run, but holds some: holdfast ls {location} lists them.")
    raise NotARunError(
        f"{location} holds no run of Holdfast: it has no run.json. Give the directory of a run: <storage_path>/<name>."
    )


def _trial_location(location: Location) -> TrialLocation | None:
    """By the trial's directory, its name or its id, below its experiment; that may be given by its name alone, too."""
    from holdfast.runs import experiments

    is_below_default = location.path is not None and not location.parent.path.exists()  # type: ignore[union-attr]
    for place in (location.parent, *([storage_location(None) / location.parent.name] if is_below_default else [])):
        if not is_run(place):
            continue
        identity = read_identity(place, READ_PATIENCE_S)
        if experiments.is_experiment(identity):
            records = read_records(place, READ_PATIENCE_S)
            trial = experiments.account(place, identity, records).find(location.name)
            home = place / trial.directory
            return TrialLocation(home.root, home.key, home.options, home.filesystem, trial.id)
    return None


def storage_location(text: str | None) -> Location:
    return _parse(settings.load().storage_path if text is None else text)


def runs_below(storage: Location) -> list[Location]:
    if storage.path is None:
        names = [key.rpartition("/")[2] for key in storage.open(PATIENCE_S).level().directories]
    else:
        names = sorted(path.name for path in storage.path.iterdir()) if storage.path.is_dir() else []
    places = [storage / name for name in names]
    return [place for place, found in zip(places, in_parallel(is_run, places), strict=True) if found]


def is_run(location: Location) -> bool:
    """A run that lost its run.json is still one: the journal has a copy."""
    if location.path is None:
        level = location.open(PATIENCE_S).level()
        return any(info.key == "run.json" for info in level.objects) or "journal" in level.directories
    return _is_local_run(location.path)


def _is_local_run(path: Path) -> bool:
    if not path.is_dir():
        return False
    layout = RunLayout(path)
    try:
        return layout.run_file.exists() or bool(layout.segments())
    except PermissionError:
        return True  # it may be one, and then reading it says what is wrong


def _is_there(location: Location) -> bool:
    if location.path is not None:
        return location.path.exists()
    return location.open(PATIENCE_S).level() != Level([], [])


def _parse(text: str) -> Location:
    if not text:
        raise ValueError("the path is empty; give a directory or a URL")
    try:
        return Location.parse("(path", text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("(path=").replace("): ", ": ", 1)) from None
