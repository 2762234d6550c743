"""Check all that is stored of a run, every byte of every checkpoint, and say what it would resume from.

Exit code 1 if anything is damaged. What was set aside before is named, and is no new damage. Nothing is changed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast.cli import output, paths, reading
from holdfast.cli.lease_probe import living_driver
from holdfast.core import events as ev
from holdfast.core import run as core
from holdfast.core.state import CheckpointRecord
from holdfast.driver.display_picture import headline
from holdfast.driver.recovery import reconcile
from holdfast.errors import CheckpointDamagedError
from holdfast.store import journal
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import read_metrics
from holdfast.store.sealed import Damage

HELP = "check that all that is stored of a run is intact"
_METRICS = re.compile(r"attempt-(\d+)/rank-(\d+)\.jsonl")


@dataclass
class Check:
    what: str
    found: str  # in words, if it is good
    damage: list[Damage] = field(default_factory=list)


class _OnlyLooking(CheckpointStore):
    """Lets the driver's own way of taking stock be used without its clearing up."""

    def delete(self, id: str) -> None: ...

    def quarantine(self, id: str, why: str) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help="a run's directory, or its name in the default storage path")


def run(arguments: argparse.Namespace) -> int:
    layout = RunLayout(paths.run_directory(arguments.run_path))
    checks: list[Check] = []
    for check in _checks(layout):
        checks.append(check)
        if not arguments.json:
            _print_check(check)
    damaged = sum(bool(check.damage) for check in checks)
    resume = _resume(layout, [d for check in checks for d in check.damage if d.path.startswith("checkpoints/")])
    set_aside = reading.quarantined(layout)
    if arguments.json:
        output.print_json(
            {
                "path": str(layout.root),
                "good": not damaged,
                "checks": [vars(check) | {"damage": output.damage_json(check.damage)} for check in checks],
                "quarantined": [{"id": id, "why": why} for id, why in set_aside],
                "resume": resume and {"id": resume.id, "report": resume.report},
            }
        )
        return 1 if damaged else 0
    for id, why in set_aside:
        print(f"quarantined  {id}: {headline(why)}")
    since = f"{resume.id} (report {resume.report:,})" if resume else "the beginning: there is no good checkpoint"
    print(f"a driver would go on from {since}")
    print(f"{damaged} of {len(checks)} damaged" if damaged else f"all {len(checks)} good")
    return 1 if damaged else 0


def _checks(layout: RunLayout) -> Iterator[Check]:
    yield Check("run.json", "good", reading.confirmed(reading.run_file_damage, layout))
    records, _ = journal.read(layout)
    files = len(layout.segments())
    found = f"good: {_count(len(records), 'record')} in {_count(files, 'file')}"
    yield Check("journal", found, reading.confirmed(reading.journal_damage, layout))
    yield _check_metrics(layout)
    yield from _check_checkpoints(layout)


def _check_metrics(layout: RunLayout) -> Check:
    names = (path.relative_to(layout.metrics_dir).as_posix() for path in layout.metrics_dir.glob("attempt-*/*.jsonl"))
    files = sorted((int(match[1]), int(match[2])) for match in map(_METRICS.fullmatch, names) if match)
    count = 0
    damage: list[Damage] = []
    for generation, rank in files:
        count += len(read_metrics(layout, generation, rank)[0])
        damage += reading.confirmed(lambda *file: read_metrics(layout, *file)[1], generation, rank)
    return Check("metrics", f"good: {_count(count, 'report')} in {_count(len(files), 'file')}", damage)


def _check_checkpoints(layout: RunLayout) -> Iterator[Check]:
    store = CheckpointStore(layout)
    for damage in reading.confirmed(reading.manifest_damage, layout):
        yield Check(_checkpoint_of(damage), "", [damage])
    for manifest in store.scan()[0]:
        size = output.size_text(sum(entry.size for entry in manifest.files))
        check = Check(manifest.id, f"good: report {manifest.report:,}, {_count(len(manifest.files), 'file')}, {size}")
        try:
            store.verify(manifest.id)
        except CheckpointDamagedError as error:
            path = layout.manifest_file(manifest.id)
            if not path.exists():
                continue  # a driver has just deleted it, or set it aside
            check.damage.append(Damage(layout.relative(path), "files", str(error)))
        yield check


def _resume(layout: RunLayout, damage: Iterable[Damage]) -> CheckpointRecord | None:
    """What the next driver would choose: it takes stock as it does here, and tries the newest first.

    While one is at work its journal says it all, and the files would be ahead of it.
    """
    is_driven = living_driver(layout) is not None
    past = reading.replay(layout, journal.read(layout)[0])
    state = past.state
    score = (reading.identity(layout).get("checkpoint") or {}).get("checkpoint_score_attribute")
    events = [] if is_driven else reconcile(past, _OnlyLooking(layout), score)[0]
    for event in (*events, *(ev.Damaged(_checkpoint_of(d), d.what) for d in damage)):
        state = core.replay(state, event)
    return state.newest


def _checkpoint_of(damage: Damage) -> str:
    return damage.path.rpartition("/")[2].removesuffix(".json")


def _print_check(check: Check) -> None:
    if not check.damage:
        print(f"{check.what:<20} {check.found}", flush=True)
    for damage in check.damage:
        print(f"{check.what:<20} DAMAGED: {output.damage_text(damage)}", flush=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
