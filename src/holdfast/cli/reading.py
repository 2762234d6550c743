"""What a run's files say, while a driver may be writing them.

The manifests are read before the journal and a finding counts only if a second look has it too: what was deleted, or
half written, at the first look must not pass for damage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ParamSpec

import msgspec

from holdfast.cli.lease_probe import LivingDriver
from holdfast.cli.runs import Run
from holdfast.core.run.state import ValidationStatus
from holdfast.errors import StorageError
from holdfast.runs import experiments
from holdfast.runs.past import Past, read_past
from holdfast.store.checkpoints import Manifest
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.metrics import parse_line
from holdfast.store.sealed import Damage
from holdfast.store.times import is_time

_P = ParamSpec("_P")


@dataclass(frozen=True)
class Reading:
    run: Run
    driver: LivingDriver | None
    manifests: list[Manifest]
    records: list[Record]
    past: Past

    @property
    def state(self) -> str:
        if self.driver is not None:
            return "running"
        if self.records and self.records[-1].kind == experiments.OVER:
            return "finished"
        return "interrupted" if self.past.ended is None else self.past.ended.outcome.value

    @cached_property
    def last_report(self) -> tuple[int, dict[str, Any] | None]:
        """The number of reports in the surviving history, and rank 0's last."""
        groups = self.past.groups
        limit = math.inf  # what a group reported beyond the next one's start was taken back
        for group in reversed(groups):
            for line in self.run.metrics_backwards(group.generation):
                row = parse_line(line)
                if row is not None and group.base + row["index"] < limit:
                    return max(group.base + row["index"] + 1, groups[-1].base), row
            limit = min(limit, group.base)
        return groups[-1].base if groups else 0, None

    @property
    def last_change(self) -> float | None:
        _, row = self.last_report
        times = [self.records[-1].time] if self.records else []
        return max(filter(is_time, [*times, row["time"]] if row else times), default=None)

    def validation(self, manifest: Manifest) -> ValidationStatus:
        for record in self.past.state.checkpoints:
            if record.id == manifest.id:
                return record.validation
        return ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING

    def metrics(self, manifest: Manifest) -> dict[str, Any]:
        return {**(manifest.metrics or {}), **(self.past.validated.get(manifest.id) or {})}


def read(run: Run, with_manifests: bool = True) -> Reading:
    driver = run.driver()
    manifests, _ = run.manifests() if with_manifests else ([], [])
    records, _ = run.journal()
    return Reading(run, driver, manifests, records, replay(run.location, records))


def replay(location: Location, records: list[Record]) -> Past:
    try:
        return read_past(records)
    except msgspec.ValidationError as error:
        raise StorageError(
            f"This version of Holdfast cannot read the journal of {location} ({error}). "
            "Upgrade Holdfast: pip install --upgrade holdfast"
        ) from error


def confirmed(look: Callable[_P, list[Damage]], *args: _P.args, **kwargs: _P.kwargs) -> list[Damage]:
    found = look(*args, **kwargs)
    return [damage for damage in look(*args, **kwargs) if damage in found] if found else []


def journal_damage(run: Run) -> list[Damage]:
    return run.journal()[1]


def manifest_damage(run: Run) -> list[Damage]:
    """Manifests that are not intact, and those that are gone although the journal has their checkpoints as kept, unless
    they were set aside or deleted by hand."""
    manifests, found = run.manifests()
    kept = replay(run.location, run.journal()[0]).state.checkpoints
    seen = {manifest.id for manifest in manifests} | {checkpoint_of(damage) for damage in found}
    if any(record.id not in seen for record in kept):
        seen |= {id for id, _ in run.quarantined()}
    for record in kept:
        if record.id not in seen and not run.has_manifest(record.id):
            path = f"checkpoints/{record.id}.json"
            found.append(Damage(path, "file", "it is gone, and with it the checkpoint"))
    return found


def checkpoint_of(damage: Damage) -> str:
    return damage.path.rpartition("/")[2].removesuffix(".json")
