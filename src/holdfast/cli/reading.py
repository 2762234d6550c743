"""What a run's files say, while a driver may be writing them.

The manifests are read before the journal and a finding counts only if a second look has it too: what was deleted, or
half written, at the first look must not pass for damage.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec

import msgspec

from holdfast.cli.lease_probe import LivingDriver, living_driver
from holdfast.core.state import ValidationStatus
from holdfast.driver.history import read_identity
from holdfast.driver.recovery import Past, read_past
from holdfast.errors import StorageError
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore, Manifest
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import parse_line
from holdfast.store.sealed import Damage

_P = ParamSpec("_P")
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Reading:
    layout: RunLayout
    driver: LivingDriver | None
    manifests: list[Manifest]
    records: list[Record]
    past: Past

    @property
    def state(self) -> str:
        if self.driver is not None:
            return "running"
        return "interrupted" if self.past.ended is None else self.past.ended.outcome.value

    @cached_property
    def last_report(self) -> tuple[int, dict[str, Any] | None]:
        """The number of reports in the surviving history, and rank 0's last."""
        groups = self.past.groups
        limit = math.inf  # what a group reported beyond the next one's start was taken back
        for group in reversed(groups):
            for line in _lines_from_the_end(self.layout.metrics_file(group.generation, 0)):
                row = parse_line(line)
                if row is not None and group.base + row["index"] < limit:
                    return max(group.base + row["index"] + 1, groups[-1].base), row
            limit = min(limit, group.base)
        return groups[-1].base if groups else 0, None

    @property
    def last_change(self) -> float | None:
        _, row = self.last_report
        times = [self.records[-1].time] if self.records else []
        return max([*times, row["time"]] if row else times, default=None)

    def validation(self, manifest: Manifest) -> ValidationStatus:
        for record in self.past.state.checkpoints:
            if record.id == manifest.id:
                return record.validation
        return ValidationStatus.NONE if manifest.validation is None else ValidationStatus.PENDING

    def metrics(self, manifest: Manifest) -> dict[str, Any]:
        return {**(manifest.metrics or {}), **(self.past.validated.get(manifest.id) or {})}


def read(root: Path) -> Reading:
    layout = RunLayout(root)
    driver = living_driver(layout)
    manifests, _ = CheckpointStore(layout).scan()
    records, _ = journal.read(layout)
    return Reading(layout, driver, manifests, records, replay(layout, records))


def replay(layout: RunLayout, records: list[Record]) -> Past:
    try:
        return read_past(records)
    except msgspec.ValidationError as error:
        raise StorageError(
            f"The journal of {layout.root} is not one that this version of Holdfast reads ({error}): "
            "upgrade it (pip install --upgrade holdfast)."
        ) from error


def identity(layout: RunLayout) -> dict[str, Any]:
    """What run.json or its copy says; empty if both are lost, which is then among the damage."""
    try:
        return read_identity(layout.root)
    except StorageError:
        return {}


def confirmed(look: Callable[_P, list[Damage]], *args: _P.args, **kwargs: _P.kwargs) -> list[Damage]:
    found = look(*args, **kwargs)
    return [damage for damage in look(*args, **kwargs) if damage in found] if found else []


def run_file_damage(layout: RunLayout) -> list[Damage]:
    try:
        runfile.read(layout)
    except StorageError as error:
        return [Damage(layout.relative(layout.run_file), "file", str(error))]
    return []


def journal_damage(layout: RunLayout) -> list[Damage]:
    return journal.read(layout)[1]


def manifest_damage(layout: RunLayout) -> list[Damage]:
    """Manifests that are not intact, and those that are gone although the journal has their checkpoints as kept."""
    manifests, damage = CheckpointStore(layout).scan()
    found = [d for d in damage if (layout.root / d.path).exists()]
    kept = replay(layout, journal.read(layout)[0]).state.checkpoints
    seen = {manifest.id for manifest in manifests}
    for record in kept:
        path = layout.manifest_file(record.id)
        if record.id not in seen and not path.exists():
            found.append(Damage(layout.relative(path), "file", "it is gone, and with it the checkpoint"))
    return found


def quarantined(layout: RunLayout) -> list[tuple[str, str]]:
    """The checkpoints that were set aside, with the reason."""
    found = []
    for path in sorted(layout.checkpoints_dir.glob("*.json.damaged")):
        id = path.name.removesuffix(".json.damaged")
        try:
            why = layout.quarantine_reason_file(id).read_text(errors="replace").strip()
        except OSError:
            why = ""
        found.append((id, why or "the reason was not written down"))
    return found


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    try:
        file = open(path, "rb", buffering=0)
    except FileNotFoundError:
        return
    with file:
        position, rest = file.seek(0, io.SEEK_END), b""
        while position:
            size = min(_BLOCK, position)
            position = file.seek(position - size)
            first, *lines = ((file.read(size) or b"") + rest).split(b"\n")
            yield from reversed(lines)
            rest = first
        yield rest
