"""Check everything stored of a run, every byte of every checkpoint, and say what it would resume from.

Exit code 1 if anything is damaged. Damage that a driver found before is listed and does not count. Nothing is changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.cli import output, paths
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.state import CheckpointRecord
from holdfast.driver.recovery import reconcile
from holdfast.errors import CheckpointDamagedError
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.runs.stored_run import StoredRun, checkpoint_of
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.interfaces import Judge
from holdfast.store.manifests import Manifest
from holdfast.store.sealed import Damage
from holdfast.ui.display_picture import headline


@dataclass
class Check:
    what: str
    found: str  # in words, if it is good
    damage: list[Damage] = field(default_factory=list)


class _OnlyLooking(CheckpointStore):
    """Makes the driver's own reconciliation usable without its clean-up."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run

    def scan(self, judge: Judge | None = None) -> tuple[list[Manifest], list[Damage]]:
        return self._run.manifests()

    def delete(self, id: str) -> None: ...

    def quarantine(self, id: str, why: str) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    checks: list[Check] = []
    for check in _checks(stored):
        checks.append(check)
        if not arguments.json:
            _print_check(check)
    damaged = sum(bool(check.damage) for check in checks)
    resume = _resume(stored, [d for check in checks for d in check.damage if d.path.startswith("checkpoints/")])
    set_aside = stored.quarantined()
    if arguments.json:
        output.print_json(
            {
                "path": str(stored.location),
                "good": not damaged,
                "checks": [vars(check) | {"damage": output.damage_json(check.damage)} for check in checks],
                "quarantined": [{"id": id, "why": why} for id, why in set_aside],
                "resume": resume and {"id": resume.id, "report": resume.report},
            }
        )
        return 1 if damaged else 0
    for id, why in set_aside:
        output.say(f"quarantined  {id}: {headline(why)}")
    if not isinstance(stored, StoredExperiment):
        since = f"{resume.id} (report {resume.report:,})" if resume else "the beginning: it has no intact checkpoint"
        output.say(f"the run would resume from {since}")
    output.say(f"{damaged} of {len(checks)} damaged" if damaged else f"all {len(checks)} good")
    return 1 if damaged else 0


def _checks(stored: StoredRun) -> Iterator[Check]:
    yield Check("run.json", "good", stored.run_file_damage())
    records, _ = stored.journal()
    found = f"good: {_count(len(records), 'record')} in {stored.store.journal_files()}"
    yield Check("journal", found, stored.journal_damage())
    if isinstance(stored, StoredExperiment):
        yield from _check_trials(stored)
        return
    yield _check_metrics(stored)
    yield from _check_checkpoints(stored)


def _check_trials(stored: StoredExperiment) -> Iterator[Check]:
    for trial, part in stored.trials(stored.look()[0]):
        checks = [_check_metrics(part), *_check_checkpoints(part)]
        found = f"good: {_count(trial.results, 'result')}, {_count(len(checks) - 1, 'checkpoint')}"
        damage = [Damage(f"{trial.directory}/{d.path}", d.where, d.what) for check in checks for d in check.damage]
        yield Check(trial.name, found, damage)


def _check_metrics(stored: StoredRun) -> Check:
    files = stored.metrics_files()
    count = 0
    damage: list[Damage] = []
    for file in files:
        intact, found = stored.metrics_damage(file)
        count, damage = count + intact, damage + found
    return Check("metrics", f"good: {_count(count, 'report')} in {_count(len(files), 'file')}", damage)


def _check_checkpoints(stored: StoredRun) -> Iterator[Check]:
    for damage in stored.manifest_damage():
        yield Check(checkpoint_of(damage), "", [damage])
    for manifest in stored.manifests()[0]:
        size = output.size_text(sum(entry.size for entry in manifest.files))
        check = Check(manifest.id, f"good: report {manifest.report:,}, {_count(len(manifest.files), 'file')}, {size}")
        try:
            stored.verify(manifest.id)
        except CheckpointDamagedError as error:
            if not stored.has_manifest(manifest.id):
                continue  # a driver has just deleted it, or set it aside
            check.damage.append(Damage(f"checkpoints/{manifest.id}.json", "files", str(error)))
        yield check


def _resume(stored: StoredRun, damage: Iterable[Damage]) -> CheckpointRecord | None:
    """The checkpoint that the next driver would choose: reconcile as it does, and try the newest first. While a driver
    is running, its journal counts, because the files may be ahead of it.
    """
    is_driven = stored.driver() is not None
    past = stored.past(stored.records())
    state = past.state
    score = (stored.known_identity().get("checkpoint") or {}).get("checkpoint_score_attribute")
    events = [] if is_driven else reconcile(past, _OnlyLooking(stored), score)[0]
    for event in (*events, *(ev.Damaged(checkpoint_of(d), d.what) for d in damage)):
        state = core.replay(state, event)
    return state.newest


def _print_check(check: Check) -> None:
    if not check.damage:
        output.say(f"{check.what:<20} {check.found}", flush=True)
    for damage in check.damage:
        output.say(f"{check.what:<20} DAMAGED: {output.damage_text(damage)}", flush=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
